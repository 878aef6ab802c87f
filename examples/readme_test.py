"""The first C++ block of README.md is an example's file, word for word.

usage: readme_test.py README.md EXAMPLE.cc
"""

import difflib
import pathlib
import re
import sys


def main():
    readme, example = (
        pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:3]
    )
    block = re.search(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if block is None:
        sys.exit("README.md has no ```cpp block")
    if block.group(1) != example:
        sys.stdout.writelines(
            difflib.unified_diff(
                example.splitlines(True),
                block.group(1).splitlines(True),
                "example",
                "README.md",
            )
        )
        sys.exit("README.md and the example differ")


main()
