"""The walk of docs/your-own.md, block by block, in a folder of its own.

The Python block is gaussian.py; blocks of sh run as they are written, with the tool
and Python on the path and the tools of the tree beside them; the diff is applied, and
check.new_encoding compiles what comes of it; the C++ block is examples/own_encoding.cc,
which the tests build.

usage: walk.py REPOSITORY LOCUS     (with locus_attn and PyTorch on PYTHONPATH)
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    locus = pathlib.Path(sys.argv[2]).resolve()
    text = (root / "docs/your-own.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (program,) = (block for language, block in blocks if language == "cpp")
    if program != (root / "examples/own_encoding.cc").read_text(encoding="utf-8"):
        sys.exit("the C++ block is not examples/own_encoding.cc")
    with tempfile.TemporaryDirectory(prefix="locus_walk_") as folder:
        work = pathlib.Path(folder)
        for part in ("tools", "include", "src/encodings", "tests/encodings"):
            shutil.copytree(root / part, work / part)
        shutil.copy(root / ".clang-format", work)
        python = pathlib.Path(sys.executable).parent
        path = os.pathsep.join([str(python), str(locus.parent), os.environ["PATH"]])
        for language, block in blocks:
            if language == "python":
                (work / "gaussian.py").write_text(block, encoding="utf-8")
            elif language == "sh":
                subprocess.run(
                    ["sh", "-e", "-c", block],
                    cwd=work,
                    env={**os.environ, "PATH": path},
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
            elif language == "diff":
                subprocess.run(
                    ["git", "apply"], cwd=work, input=block, text=True, check=True
                )
        for name in (
            *("three.pdf", "alibi.csv", "mine/report.html"),
            *("mine/export/text-loss.pdf", "mine/export/summary.csv"),
            "src/encodings/gaussian.cc",
        ):
            if not (work / name).exists():
                sys.exit(f"the walk does not end with {name}")
        results = json.loads((work / "mine/results.json").read_text())
        names = [e["name"] for e in results["encodings"]]
        if names != ["alibi", "rope{base=100}", "rope", "gaussian"]:
            sys.exit(f"the study compares {names}")
        if results["failed"] or any("refused" in run for run in results["runs"]):
            sys.exit("a run of the study failed")


main()
