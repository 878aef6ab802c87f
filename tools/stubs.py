#!/usr/bin/env python3
"""Writes the type stubs of what is made from the descriptors of encodings.

    python tools/stubs.py [FOLDER]

python/locus_attn/_locus.pyi is the native module: signatures come from the module
itself, and what arrays come back from ARRAYS below.
python/locus_attn/torch/_modules.pyi has the modules for PyTorch. FOLDER: another
place than python/locus_attn.
"""

import inspect
import itertools
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


# Arrays are those of any framework that speaks DLPack, and results are of the
# framework of the first argument: _ArrayT. The other arguments that must be arrays
# are _Array; positions, lengths and the like may be sequences, too, and stay Any.
HEAD = """\
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

__version__: str

class _Array(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

_ArrayT = TypeVar("_ArrayT", bound=_Array)
"""

# Function -> its arguments that must be arrays, and its result.
ARRAYS = {
    "attention": (("k", "v"), "_ArrayT"),
    "attention_backward": (
        ("q", "k", "v", "out", "lse"),
        "tuple[_ArrayT, _ArrayT, _ArrayT, dict[str, Any]]",
    ),
    "merge": ((), "tuple[_ArrayT, _ArrayT]"),
    "linear_attention": (("k", "v"), "_ArrayT"),
    "forget_gate_sums": ((), "_ArrayT"),
    "forget_gate_bias": ((), "_ArrayT"),
    "forget_gate_backward": ((), "_ArrayT"),
    "rotate": ((), "_ArrayT"),
    "rotate_with": (("cos", "sin"), "_ArrayT"),
    "decode": ((), "_ArrayT"),
    "decode_pages": (("k_pages", "v_pages"), "_ArrayT"),
    "convert_layout": ((), "_ArrayT"),
}


def overloads(line: str, flags: list[str], result: str) -> list[str]:
    """A signature for each way to set the flags that add arrays to the result."""
    lines = []
    for chosen in itertools.product((False, True), repeat=len(flags)):
        typed, count = line, 1 + sum(chosen)
        for flag, on in zip(flags, chosen, strict=True):
            kind = "Literal[True]" if on else "Literal[False] = False"
            typed = typed.replace(f"{flag}: bool = False", f"{flag}: {kind}")
        arrays = f"tuple[{', '.join([result] * count)}]" if count > 1 else result
        lines.append(typed.replace(f"-> {result}:", f"-> {arrays}:"))
    return [
        *lines,
        line.replace(f"-> {result}:", f"-> {result} | tuple[{result}, ...]:"),
    ]


def type_arrays(text: str) -> str:
    """The stub with arrays typed, and overloads where flags decide the result."""
    found = set()

    def typed(match: re.Match) -> str:
        line, indent, name, body = match[0], match[1], match[2], match[3]
        if name not in ARRAYS:
            return line
        found.add(name)
        arrays, result = ARRAYS[name]
        head, tail = line.removesuffix(body), body
        first = "tuple[_ArrayT, _ArrayT]" if name == "merge" else "_ArrayT"
        head = re.sub(r"(\((?:self, )?\w+): Any", rf"\1: {first}", head, count=1)
        if name == "merge":
            head = head.replace("b: Any", f"b: {first}")
        for argument in arrays:
            head = re.sub(rf"\b{argument}: Any\b", f"{argument}: _Array", head)
        head = re.sub(r"-> Any:$", f"-> {result}:", head)
        flags = [f for f in ("return_lse", "return_weights") if f"{f}: bool" in head]
        if not flags:
            return head + tail
        lines = overloads(head, flags, result)
        for at, each in enumerate(lines):
            end = tail if at == 0 else " ..."
            lines[at] = f"{indent}@overload\n{each}{end}"
        return "\n\n".join(lines)

    signature = r'^( *)def (\w+)\(.*-> Any:((?: \.\.\.)?(?:\n\1 +"""[\s\S]*?""")?)$'
    text = re.sub(signature, typed, text, flags=re.MULTILINE)
    assert found == set(ARRAYS), set(ARRAYS) - found
    return text


def native() -> str:
    generator = StubGen(locus_attn._locus)
    generator.put(locus_attn._locus)
    text = generator.get()
    # Properties are typed by nanobind, functions by their own signatures.
    text = re.sub(r"-> object\b", "-> Any", text)
    head, _, rest = text.partition("\n\n")
    rest = re.sub(r"\A(?:(?:from|import) .*\n|\n)*", "", rest)
    # Containers without a type of what they contain.
    for bare, full in (("dict", "str, Any"), ("tuple", "Any, ..."), ("list", "Any")):
        word = rf"^( *def .*)\b{bare}\b(?!\[|\()"
        while re.search(word, rest, re.MULTILINE):
            rest = re.sub(word, rf"\1{bare}[{full}]", rest, flags=re.MULTILINE)
    return type_arrays(f"{head}\n\n{HEAD}\n\n{rest}")


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
