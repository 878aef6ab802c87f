"""Writes the type stub of the native module, python/locus/_locus.pyi.

    python tools/stubs.py [FILE]

Signatures come from the module itself; arrays of any framework are typed Any.
"""

import pathlib
import re
import sys

from nanobind.stubgen import StubGen

import locus._locus


def stub() -> str:
    generator = StubGen(locus._locus)
    generator.put(locus._locus)
    text = generator.get()
    # Properties are typed by nanobind, functions by their own signatures.
    text = re.sub(r"-> object\b", "-> Any", text)
    imports = "from collections.abc import Callable, Sequence\nfrom typing import Any\n"
    head, _, rest = text.partition("\n\n")
    rest = re.sub(r"\A(?:(?:from|import) .*\n|\n)*", "", rest)
    return f"{head}\n\n{imports}\n\n{rest}"


def main() -> None:
    package = pathlib.Path(__file__).parent.parent / "python" / "locus"
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else package / "_locus.pyi"
    path.write_text(stub())


if __name__ == "__main__":
    main()
