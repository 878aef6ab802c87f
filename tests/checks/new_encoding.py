"""What tools/new_encoding.py writes compiles and passes, as it is.

In a copy of the headers, the encodings and their tests an encoding is started; its
source, the list, its test and the tests over the whole list are compiled, linked
with the library and run.

usage: new_encoding.py REPOSITORY COMPILER LIBRARY WORK
"""

import pathlib
import shutil
import subprocess
import sys

SOURCES = [
    "src/encodings/made_up.cc",
    "src/encodings/registry.cc",
    "tests/encodings/made_up_test.cc",
    "tests/encodings/descriptor_test.cc",
]
TOOL = "tools/new_encoding.py"


def start(root, work, name):
    """The output of the tool, and whether it refused."""
    command = [sys.executable, str(root / TOOL), name, "--root", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode != 0


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    compiler, library = sys.argv[2:4]
    work = pathlib.Path(sys.argv[4])
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("include", "src/core", "src/encodings", "tests/encodings"):
        shutil.copytree(root / folder, work / folder)
    shutil.copytree(root / "tests/support", work / "tests/support")

    output, refused = start(root, work, "Made Up")
    if not refused or "got 'Made Up'" not in output:
        sys.exit(f"a name with a space was not refused: {output}")
    output, refused = start(root, work, "rope")
    if not refused or "there is an encoding 'rope' already" not in output:
        sys.exit(f"a name that is taken was not refused: {output}")
    output, refused = start(root, work, "made-up")
    if refused:
        sys.exit(output)

    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    flags += [f"-I{work / folder}" for folder in ("include", "src", "tests")]
    objects = []
    for source in SOURCES:
        objects.append(str(work / pathlib.Path(source).with_suffix(".o").name))
        command = [compiler, *flags, "-c", str(work / source), "-o", objects[-1]]
        subprocess.run(command, check=True)
    # The list compiled here comes before that of the library.
    program = str(work / "test")
    libraries = ["-lgtest_main", "-lgtest", "-lfmt", "-lhwy", "-lpthread", "-ldl"]
    subprocess.run([compiler, *objects, library, *libraries, "-o", program], check=True)
    chosen = "--gtest_filter=MadeUpTest.*:DescriptorTest.*"
    subprocess.run([program, chosen, "--gtest_brief=1"], check=True)


main()
