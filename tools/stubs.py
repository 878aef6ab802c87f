#!/usr/bin/env python3
"""Writes the type stubs of what is made from the descriptors of encodings.

    python tools/stubs.py [FOLDER]

python/locus_attn/_locus.pyi is the native module: signatures come from the module
itself; arrays of any framework are typed Any. python/locus_attn/torch/_modules.pyi
has the modules for PyTorch. FOLDER: another place than python/locus_attn.
"""

import inspect
import pathlib
import re
import sys

from nanobind.stubgen import StubGen

import locus_attn as locus
import locus_attn._locus
from locus_attn.torch import made

TYPES = {
    "int": "int",
    "real": "float",
    "flag": "bool",
    "ints": "Sequence[int]",
    "reals": "Sequence[float]",
}


def native() -> str:
    generator = StubGen(locus_attn._locus)
    generator.put(locus_attn._locus)
    text = generator.get()
    # Properties are typed by nanobind, functions by their own signatures.
    text = re.sub(r"-> object\b", "-> Any", text)
    imports = "from collections.abc import Callable, Sequence\nfrom typing import Any\n"
    head, _, rest = text.partition("\n\n")
    rest = re.sub(r"\A(?:(?:from|import) .*\n|\n)*", "", rest)
    return f"{head}\n\n{imports}\n\n{rest}"


def type_of(field: dict) -> str:
    """The type of an argument that a field describes."""
    name = TYPES.get(field["type"], "Any")
    if field["type"] == "choice":
        words = ", ".join(f'"{word}"' for word in field["choices"])
        name = f"Literal[{words}]"
    empty = field["optional"] or field["default"] == "None"
    return f"{name} | None" if empty and name != "Any" else name


def constructor(cls: type, info: locus.EncodingInfo) -> str:
    fields = info.example_options if info.training else info.fields
    types = {field["name"]: type_of(field) for field in fields}
    arguments, by_name = ["self"], False
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            arguments.append("*")
            by_name = True
        default = ""
        if parameter.default is not parameter.empty:
            quoted = isinstance(parameter.default, str)
            default = (
                f' = "{parameter.default}"' if quoted else f" = {parameter.default}"
            )
        arguments.append(f"{name}: {types.get(name, 'int')}{default}")
    lines = "".join(f"        {argument},\n" for argument in arguments)
    return f"    def __init__(\n{lines}    ) -> None: ...\n"


def modules() -> str:
    imports, classes = [], []
    for info in locus.encodings():
        name = info.class_name
        cls = made.module_class(name)
        if cls.__module__ != "locus_attn.torch":
            file = cls.__module__.rpartition(".")[2]
            imports.append(f"from .{file} import {name} as {name}\n")
            continue
        (base,) = cls.__bases__
        rows = "".join(f"    {row['name']}: nn.Parameter\n" for row in info.training)
        body = constructor(cls, info)
        classes.append(f"\nclass {name}({base.__name__}):\n{rows}{body}")
    return (
        "# Modules of encodings, written by tools/stubs.py.\n"
        "from collections.abc import Sequence\n"
        "from typing import Any, Literal\n\n"
        "from torch import nn\n\n"
        + "".join(sorted(imports, key=str.lower))
        + "from .made import TrainedModule\n"
        + "from .module import FixedModule, InputModule, RotaryModule\n"
        + "".join(classes)
    )


def main() -> None:
    package = pathlib.Path(__file__).resolve().parent.parent / "python" / "locus_attn"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else package
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "_locus.pyi").write_text(native())
    (folder / "torch" / "_modules.pyi").write_text(modules())


if __name__ == "__main__":
    main()
