"""Makes a source of the ```cpp blocks of documents that show parts of programs.

The blocks of a page become one function, in order, whose parameters are what the
page takes for granted. That the source compiles is the test.

usage: fragments.py DOCS OUTPUT.cc PAGE...     (models.md, kernels.md, scale.md)
"""

import pathlib
import re
import sys

# What each page takes for granted: declarations, and the function's parameters.
GIVEN = {
    "models.md": ("", "locus::Tensor q, locus::Tensor k, locus::Tensor v"),
    "kernels.md": (
        "struct { template <typename F> void RunOnEach(int, const F& f) { f(); } } "
        "my_pool;",
        "",
    ),
    "scale.md": (
        "",
        "locus::ring::Sharding sharding, int64_t length, int rank, int ranks, "
        "locus::Tensor q, locus::Tensor k, locus::Tensor v, locus::Tensor d_out, "
        "const locus::Encoding& encoding",
    ),
}


def main():
    docs, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    includes, functions = ["#include <locus/locus.h>", "#include <vector>"], []
    for page in sys.argv[3:]:
        text = (docs / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if not blocks:
            sys.exit(f"{page} has no ```cpp block")
        code = "".join(blocks)
        includes += re.findall(r"^#include .*$", code, re.MULTILINE)
        code = re.sub(r"^#include .*\n", "", code, flags=re.MULTILINE)
        declarations, parameters = GIVEN[page]
        name = page.removesuffix(".md")
        functions.append(
            f"{declarations}\nvoid Shown_{name}({parameters}) {{\n{code}}}\n"
        )
    output.write_text("\n".join(includes + functions), encoding="utf-8")


main()
