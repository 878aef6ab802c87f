"""The first C++ block of a page is an example's file, word for word.

usage: readme_test.py PAGE.md EXAMPLE.cc
"""

import difflib
import pathlib
import re
import sys


def main():
    page, example = (
        pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:3]
    )
    block = re.search(r"^```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    if block is None:
        sys.exit(f"{sys.argv[1]} has no ```cpp block")
    if block.group(1) != example:
        sys.stdout.writelines(
            difflib.unified_diff(
                example.splitlines(True),
                block.group(1).splitlines(True),
                "example",
                sys.argv[1],
            )
        )
        sys.exit(f"{sys.argv[1]} and the example differ")


main()
