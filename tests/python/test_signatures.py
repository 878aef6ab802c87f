"""Signatures that programs rely on stay: those of signatures.txt, in the stub.

An encoding that is added later has no line there. A line changes only when a change
of the API is meant.
"""

import ast
import inspect
import pathlib

import pytest

import locus_attn as locus

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEPT = (HERE / "signatures.txt").read_text().splitlines()


def stub_signatures():
    tree = ast.parse((ROOT / "python" / "locus_attn" / "_locus.pyi").read_text())
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for function in node.body:
            if isinstance(function, ast.FunctionDef):
                arguments = ast.unparse(function.args)
                result = ast.unparse(function.returns)
                yield f"{node.name}.{function.name}({arguments}) -> {result}"


def test_the_stub_keeps_every_signature():
    missing = set(KEPT) - set(stub_signatures())
    assert not missing, missing


@pytest.mark.parametrize("at", range(len(locus.encodings())))
def test_the_descriptor_is_the_constructor(at):
    """Names, order, defaults and docstring of each class come from its fields."""
    info = locus.encodings()[at]
    cls = getattr(locus, info.class_name)
    text = cls.__init__.__doc__ or ""
    document = inspect.getdoc(cls)
    assert document.startswith(info.summary)
    for field in info.fields:
        assert field["name"] in text
        assert f"{field['sentence']}." in document
    needed = {field["name"] for field in info.fields if field["default"] is None}
    if needed:
        with pytest.raises(TypeError, match="needs the argument"):
            cls()
    else:
        assert cls().name == info.name


@pytest.mark.parametrize("at", range(len(locus.encodings())))
def test_every_class_is_exported(at):
    info = locus.encodings()[at]
    assert info.class_name in locus.__all__
    for variant in [
        {},
        *(dict(x.split("=") for x in v.split(",")) for v in info.variants),
    ]:
        assert type(info.example(**variant)) is getattr(locus, info.class_name)
