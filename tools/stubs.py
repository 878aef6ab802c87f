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
    text = re.sub(r"\bencoding: object\b", "encoding: Encoding", text)
    text = re.sub(r"\bobject\b(?= \| None|[,)\n:]| =)", "Any", text)
    text = text.replace(
        "from collections.abc import Sequence\n",
        "from collections.abc import Callable, Sequence\nfrom typing import Any\n",
        1,
    )
    text = text.replace("feature_map: Any", "feature_map: Callable[[Any], Any]")
    # Keyword arguments of the examples.
    return text.replace("**options) -> Encoding", "**options: Any) -> Encoding")


def main() -> None:
    package = pathlib.Path(__file__).parent.parent / "python" / "locus"
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else package / "_locus.pyi"
    path.write_text(stub())


if __name__ == "__main__":
    main()
