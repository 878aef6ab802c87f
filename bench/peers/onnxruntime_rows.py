"""ONNX Runtime's fused operators, each a model of one node (two for RoPE).

Models have fixed shapes. Inputs and outputs are bound to memory once (I/O
binding), sessions have two threads which stop spinning when a run is over, so
that they do not slow the other side. Layouts are those the operators take:
[B, N, H D] for the contrib ones, [B, H, N, D] for Attention of opset 23; Locus
reads the same memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from onnx import TensorProto, helper

import locus_attn as locus

from . import formulas
from .case import FORWARD, THREADS, Contest, Row, Side, attention_flops, normal

GROUP = "ONNX Runtime"
CONTRIB = "com.microsoft"
_TYPES = {
    "float32": TensorProto.FLOAT,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


@dataclasses.dataclass
class Node:
    """One operator. inputs, outputs: names, "" for an absent one."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    domain: str = CONTRIB
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


def bound_call(
    nodes: Sequence[Node],
    inputs: dict[str, np.ndarray],
    outputs: dict[str, tuple[int, ...]],
) -> Callable[[], list[np.ndarray]]:
    """A run of the graph over bound memory; returns the outputs, by name order."""

    def info(name: str, kind: int, shape: Sequence[int]) -> Any:
        return helper.make_tensor_value_info(name, kind, list(shape))

    graph = helper.make_graph(
        [
            helper.make_node(n.op, n.inputs, n.outputs, domain=n.domain, **n.attributes)
            for n in nodes
        ],
        "peer",
        [info(n, _TYPES[str(a.dtype)], a.shape) for n, a in inputs.items()],
        [info(n, TensorProto.FLOAT, shape) for n, shape in outputs.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid(CONTRIB, 1)],
        ir_version=11,
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results = [np.zeros(shape, np.float32) for shape in outputs.values()]
    binding = session.io_binding()
    for name, array in inputs.items():
        value = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
    for name, array in zip(outputs, results, strict=True):
        binding.bind_output(
            name, "cpu", 0, np.float32, list(array.shape), array.ctypes.data
        )

    def run() -> list[np.ndarray]:
        session.run_with_iobinding(binding)
        return results

    return run


@dataclasses.dataclass(frozen=True)
class Attention:
    """One attention row. bias: T5's, given as [1, H, N, N]."""

    op: str
    heads: int
    kv_heads: int
    dim: int
    causal: bool = False
    bias: bool = False
    rotary: bool = False


def _nodes(spec: Attention) -> list[Node]:
    bias = "bias" if spec.bias else ""
    if spec.op == "MultiHeadAttention":
        inputs = ["q", "k", "v", "", "", bias]
        attributes = {"num_heads": spec.heads, "unidirectional": int(spec.causal)}
        return [Node(spec.op, inputs, ["out"], attributes=attributes)]
    if spec.op == "GroupQueryAttention":
        tables = ["cos", "sin"] if spec.rotary else ["", ""]
        inputs = ["q", "k", "v", "", "", "last", "total", *tables, "", bias]
        attributes = {
            "num_heads": spec.heads,
            "kv_num_heads": spec.kv_heads,
            "do_rotary": int(spec.rotary),
        }
        return [Node(spec.op, inputs, ["out"], attributes=attributes)]
    inputs = ["q", "k", "v", bias]
    attributes = {"is_causal": int(spec.causal)}
    return [Node(spec.op, inputs, ["out"], domain="", attributes=attributes)]


def _trimmed(node: Node) -> Node:
    names = list(node.inputs)
    while not names[-1]:
        names.pop()
    return dataclasses.replace(node, inputs=names)


def _contest(spec: Attention, length: int) -> Contest:
    packed = spec.op != "Attention"  # [B, N, H D]
    counts = {"q": spec.heads, "k": spec.kv_heads, "v": spec.kv_heads}
    arrays, views = {}, []
    for seed, (name, heads) in enumerate(counts.items()):
        x = normal(seed, 1, length, heads, spec.dim)
        if packed:
            arrays[name] = x.flatten(2).numpy()
            views.append(x.transpose(1, 2))
        else:
            views.append(x.transpose(1, 2).contiguous())
            arrays[name] = views[-1].numpy()
    q, k, v = views
    table = normal(4, 32, spec.heads)
    encoding, bias = None, None
    if spec.bias:
        encoding = locus.T5Bias(table.numpy(), bidirectional=True)
        bias = formulas.t5_bias(table, length)[None].contiguous()
        arrays["bias"] = bias.numpy()
    if spec.rotary:
        encoding = locus.Rope(spec.dim, "halves")
        arrays["cos"], arrays["sin"] = encoding.cos_sin(np.arange(length))
    if spec.op == "GroupQueryAttention":
        arrays["last"] = np.array([length - 1], np.int32)
        arrays["total"] = np.array([length], np.int32)
    shape = (1, length, spec.heads * spec.dim) if packed else tuple(q.shape)
    run = bound_call([_trimmed(n) for n in _nodes(spec)], arrays, {"out": shape})

    def peer() -> np.ndarray:
        (out,) = run()
        if not packed:
            return out
        return out.reshape(1, length, spec.heads, spec.dim).transpose(0, 2, 1, 3)

    def truth() -> list[torch.Tensor]:
        exact = [x.double() for x in (q, k, v)]
        if spec.rotary:
            exact[:2] = [formulas.rotate_halves(x) for x in exact[:2]]
        wide = None if bias is None else bias[0].double()
        scale = spec.dim**-0.5
        return [formulas.attend(*exact, scale=scale, bias=wide, causal=spec.causal)]

    return Contest(
        peer=Side(
            peer,
            f"{spec.op}, {'[B, N, H D]' if packed else '[B, H, N, D]'}, I/O binding",
            state=[] if bias is None else [bias],
        ),
        locus=Side(
            lambda: locus.attention(
                q, k, v, encoding, causal=spec.causal, threads=THREADS
            ),
            "locus.attention on the same memory",
        ),
        truth=truth,
        work=attention_flops(
            spec.heads, length, spec.dim, causal=spec.causal, direction=FORWARD
        ),
        shapes={name: [*x.shape] for name, x in zip("qkv", views, strict=True)},
    )


def _rotary(length: int, in_place: bool) -> Contest:
    """in_place: Locus turns q and k where they are, else it makes new arrays.

    The peer's outputs are bound memory either way.
    """
    dim, counts = 128, {"q": 32, "k": 8}
    xs = [
        normal(seed, 1, length, heads, dim)
        for seed, heads in enumerate(counts.values())
    ]
    cos, sin = locus.Rope(dim, "halves").cos_sin(np.arange(length))
    inputs = {name: x.flatten(2).numpy() for name, x in zip("qk", xs, strict=True)}
    inputs |= {"at": np.arange(length)[None], "cos": cos, "sin": sin}
    nodes = [
        Node(
            "RotaryEmbedding",
            [name, "at", "cos", "sin"],
            [f"{name}_out"],
            attributes={"interleaved": 0},
        )
        for name in counts
    ]
    shapes = {f"{name}_out": inputs[name].shape for name in counts}
    run = bound_call(nodes, inputs, shapes)

    def peer() -> list[np.ndarray]:
        return [
            out.reshape(x.shape).swapaxes(1, 2)
            for out, x in zip(run(), xs, strict=True)
        ]

    views = [x.transpose(1, 2) for x in xs]
    # Copies: the inputs of peer and truth stay as they are.
    own = [x.clone().transpose(1, 2) for x in xs]
    rope = locus.Rope(dim, "halves")

    def fresh() -> list[torch.Tensor]:
        return [
            locus.rotate_with(x, cos, sin, layout="halves", threads=THREADS)
            for x in views
        ]

    def where_they_are() -> list[torch.Tensor]:
        return [locus.rotate(x, rope, inplace=True, threads=THREADS) for x in own]

    return Contest(
        peer=Side(peer, "RotaryEmbedding, [B, N, H D], I/O binding"),
        locus=Side(where_they_are, "locus.rotate, in place")
        if in_place
        else Side(fresh, "locus.rotate_with, the same tables and memory, new outputs"),
        truth=lambda: [formulas.rotate_halves(x.double()) for x in views],
        work=2 * 4 * length * sum(counts.values()) * dim,
        shapes={name: [*x.shape] for name, x in zip("qk", views, strict=True)},
    )


def rows(longest: int) -> list[Row]:
    n = min(4096, longest)
    found = [
        Row(
            name=f"ort/RotaryEmbedding/{how.replace(' ', '-')}/N:{n}/D:128/H:32/K:8",
            group=GROUP,
            label=f"RotaryEmbedding, {how}, 32 + 8 heads, N {n}",
            direction=FORWARD,
            length=n,
            build=lambda length, h=how: _rotary(length, h == "in place"),
            limit="copy",
            # In place is another bargain: the inputs are gone.
            required=1.1 if how == "new outputs" else None,
        )
        for how in ("new outputs", "in place")
    ]
    n = min(2048, longest)
    group_query = Attention("GroupQueryAttention", 32, 8, 128, causal=True)
    specs = [
        Attention("MultiHeadAttention", 8, 8, 64),
        Attention("MultiHeadAttention", 8, 8, 64, causal=True),
        Attention("MultiHeadAttention", 8, 8, 64, bias=True),
        group_query,
        dataclasses.replace(group_query, rotary=True),
        dataclasses.replace(group_query, bias=True),
        Attention("Attention", 8, 8, 64),
        Attention("Attention", 8, 8, 64, causal=True),
        Attention("Attention", 8, 8, 64, bias=True),
    ]
    for spec in specs:
        kind = "bias" if spec.bias else "rope" if spec.rotary else "plain"
        mask = "causal" if spec.causal else "full"
        size = f"N:{n}/D:{spec.dim}/H:{spec.heads}/K:{spec.kv_heads}"
        found.append(
            Row(
                name=f"ort/{spec.op}/{kind}/{mask}/{size}",
                group=GROUP,
                label=f"{spec.op}, {kind}, {mask}, N {n}",
                direction=FORWARD,
                length=n,
                build=lambda length, s=spec: _contest(s, length),
                required=1.5 if spec.bias else 1.1,
            )
        )
    return found
