"""What tools/new_encoding.py writes compiles and passes; so does docs/your-own.md.

In a copy of the headers, the encodings and their tests two encodings are started: one
that stays as it is written, and the Gaussian of docs/your-own.md, which takes the diff
of that page. Their sources, the list, their tests and the tests over the whole list are
compiled, linked with the library and run. The command line tool is linked once more
over the new list, and has to know the Gaussian.

usage: new_encoding.py REPOSITORY COMPILER WORK LIBRARY GENERATED TOOL-PART...

GENERATED: the folder of headers that the build writes. TOOL-PART: what `locus` is
linked from, beside LIBRARY.
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

NAMES = ("made_up", "gaussian")
SOURCES = [
    "src/encodings/registry.cc",
    *(f"src/encodings/{name}.cc" for name in NAMES),
]
TESTS = [
    "tests/encodings/descriptor_test.cc",
    *(f"tests/encodings/{name}_test.cc" for name in NAMES),
]
TOOL = "tools/new_encoding.py"
PAGES = ("README.md", "docs/encodings.md")
LIBRARIES = ["-lfmt", "-lhwy", "-lpthread", "-ldl"]


def start(root, work, *arguments):
    """The output of the tool, and whether it refused."""
    command = [sys.executable, str(root / TOOL), *arguments, "--root", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode != 0


def files_of(work):
    return {p: p.read_bytes() for p in work.rglob("*") if p.is_file()}


def check_refusals(root, work):
    for arguments, message in (
        (("Made Up",), "got 'Made Up'"),
        (("rope",), "there is an encoding 'rope' already"),
        (("made-up", "--parameter", "my sigma"), "got 'my sigma'"),
    ):
        before = files_of(work)
        output, refused = start(root, work, *arguments)
        if not refused or message not in output or files_of(work) != before:
            sys.exit(f"{arguments} was not refused: {output}")


def write_encodings(root, work):
    """The two encodings, in four files each."""
    for name, *arguments in (("made-up",), ("gaussian", "--parameter", "sigma")):
        before = files_of(work)
        output, refused = start(root, work, name, *arguments)
        if refused:
            sys.exit(output)
        after = files_of(work)
        touched = sorted(
            str(p.relative_to(work)) for p in after if after[p] != before.get(p)
        )
        word = name.replace("-", "_")
        expected = [
            f"include/locus/encodings/{word}.h",
            "src/encodings/encodings.inc",
            f"src/encodings/{word}.cc",
            f"tests/encodings/{word}_test.cc",
        ]
        if touched != sorted(expected):
            sys.exit(f"{name} touches {touched}")
    page = (root / "docs/your-own.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    # As in a folder of no repository: paths are those of the copy.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(work.parent)}
    apply = ["git", "apply"]
    subprocess.run(apply, input=diff, text=True, cwd=work, env=env, check=True)
    written = [
        str(work / folder / f"{name}{end}")
        for name in NAMES
        for folder, end in (
            ("include/locus/encodings", ".h"),
            ("src/encodings", ".cc"),
            ("tests/encodings", "_test.cc"),
        )
    ]
    style = f"--style=file:{root / '.clang-format'}"
    check = ["clang-format-14", style, "--dry-run", "-Werror", *written]
    subprocess.run(check, check=True)


def check_tool(program, root, work):
    """The tool over the longer list."""

    def run(*arguments):
        command = [str(program), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout

    listed = json.loads(run("list", "--json"))["encodings"]
    (row,) = (e for e in listed if e["name"] == "gaussian")
    if row["title"] != "Gaussian bias" or row["training"][0]["name"] != "sigma":
        sys.exit(f"locus list has {row}")
    lines = run("show", "gaussian{sigma=3}", "--csv").splitlines()
    wanted = -(4.0**2) / (2 * 3.0**2)  # the first head at the offset 4
    found = [
        float(line["value"])
        for line in csv.DictReader(lines)
        if (line["series"], line["x"]) == ("head 1", "4")
    ]
    if len(found) != 1 or abs(found[0] - wanted) > 1e-6:
        sys.exit(f"locus show has {found} at the offset 4, and not {wanted}")
    run("check", "gaussian", "--require", "relative=yes", "--require", "decays=yes")
    for page in ("tools/tables.py", *PAGES):
        (work / page).parent.mkdir(exist_ok=True)
        shutil.copy(root / page, work / page)
    tables = [sys.executable, str(work / "tools/tables.py"), str(program)]
    subprocess.run(tables, check=True)
    for page in PAGES:
        if "| `gaussian` | `bias` |" not in (work / page).read_text(encoding="utf-8"):
            sys.exit(f"tools/tables.py writes no row of gaussian into {page}")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    compiler = sys.argv[2]
    work = pathlib.Path(sys.argv[3])
    library, generated, *parts = sys.argv[4:]
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("include", "src/core", "src/encodings", "tests/encodings"):
        shutil.copytree(root / folder, work / folder)
    shutil.copytree(root / "tests/support", work / "tests/support")
    check_refusals(root, work)
    write_encodings(root, work)

    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    flags += [f"-I{work / folder}" for folder in ("include", "src", "tests")]
    flags.append(f"-I{generated}")

    def compiled(source):
        made = str(work / pathlib.Path(source).with_suffix(".o").name)
        command = [compiler, *flags, "-c", str(work / source), "-o", made]
        subprocess.run(command, check=True)
        return made

    # The list compiled here comes before that of the library.
    encodings = [compiled(source) for source in SOURCES]

    def linked(name, *parts):
        made = str(work / name)
        command = [compiler, *encodings, *parts, library, *LIBRARIES, "-o", made]
        subprocess.run(command, check=True)
        return made

    program = linked("test", *map(compiled, TESTS), "-lgtest_main", "-lgtest")
    chosen = "--gtest_filter=MadeUpTest.*:GaussianTest.*:DescriptorTest.*"
    subprocess.run([program, chosen, "--gtest_brief=1"], check=True)
    if parts:
        check_tool(linked("locus", *parts), root, work)


main()
