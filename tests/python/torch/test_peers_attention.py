"""Outputs and gradients against plain torch in float64, for every encoding.

The judge works on the same numbers, converted to float64, so what is measured is
the arithmetic alone.
"""

from __future__ import annotations

import eager
import pytest
import torch
from encoding_cases import DIM, HEADS, KV_HEADS, REACH, calls, cases

import locus_attn.torch as lt

BATCH = 2
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def inputs(call, dtype, grad=False):
    gen = torch.Generator().manual_seed(5)

    def normal(heads, length):
        x = torch.randn(BATCH, heads, length, DIM, generator=gen)
        return x.to(dtype).requires_grad_(grad)

    return (
        normal(HEADS, call.q_len),
        normal(KV_HEADS, call.k_len),
        normal(KV_HEADS, call.k_len),
    )


def options_for(case, call):
    """The call's options with positions in the case's own numbering."""
    options = dict(call.options)
    if "window" in options:
        return options  # has no meaning over packed positions; text has one
    ends = options.get("key_lengths", torch.tensor([call.k_len]))[:, None]
    start = (ends - call.q_len).clamp(min=0)
    q_pos = options.get("q_positions", torch.arange(call.q_len) + start)
    k_pos = options.get("k_positions", torch.arange(call.k_len))
    if not torch.equal(case.positions(k_pos), k_pos):
        options["q_positions"] = case.positions(q_pos.expand(BATCH, -1))
        options["k_positions"] = case.positions(k_pos)
    return options


def tolerance(dtype, call):
    """In units of the largest magnitude.

    An element of the result passes through about D + Lk float32 roundings, those
    of the exponent included; a 16-bit result is rounded once more, and its
    gradients rest on an output that was rounded before.
    """
    single = torch.finfo(torch.float32).eps * (DIM + call.k_len)
    return single + (0 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps)


def assert_close(actual, expected, relative, what):
    assert actual.shape == expected.shape, what
    scale = max(float(expected.abs().max()), 1.0)
    error = float((actual.double() - expected).abs().max())
    assert error <= relative * scale, f"{what}: {error:.3g} > {relative * scale:.3g}"


CASES, CALLS = cases(), calls()


@pytest.mark.parametrize("call_name", CALLS)
@pytest.mark.parametrize("name", CASES)
def test_output_and_lse(name, call_name):
    case, call = CASES[name], CALLS[call_name]
    options = options_for(case, call)
    q, k, v = inputs(call, torch.float32)
    encoding = case.encoding()
    formula, _ = case.judge(encoding.params)
    out, lse = lt.attention(q, k, v, encoding, return_lse=True, **options)
    judge = eager.attention(
        q.double(), k.double(), v.double(), formula, return_lse=True, **options
    )
    limit = tolerance(torch.float32, call)
    assert_close(out, judge[0], limit, "out")
    blind = judge[1].isinf()
    assert torch.equal(lse.isinf(), blind)
    assert_close(
        lse.masked_fill(blind, 0), judge[1].masked_fill(blind, 0), limit, "lse"
    )


@pytest.mark.parametrize("call_name", CALLS)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, call_name):
    check_gradients(CASES[name], CALLS[call_name], torch.float32)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("name", CASES)
def test_sixteen_bits(name, dtype):
    """Output and gradients in bfloat16 and float16, tables in float32."""
    check_gradients(CASES[name], CALLS["causal"], dtype)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.params])
def test_tables_in_bfloat16(name):
    """A model converted as a whole has its tables in bfloat16 too."""
    check_gradients(
        CASES[name], CALLS["causal"], torch.bfloat16, table_dtype=torch.bfloat16
    )


def check_gradients(case, call, dtype, table_dtype=torch.float32):
    options = options_for(case, call)
    leaves = inputs(call, dtype, grad=True)
    encoding = case.encoding(table_dtype, grad=True)
    out = lt.attention(*leaves, encoding, **options)
    gen = torch.Generator().manual_seed(6)
    d_out = torch.randn(out.shape, generator=gen).to(dtype)
    out.backward(d_out)

    formula, tables = case.judge(encoding.params, grad=True)
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    judge = eager.attention(*doubles, formula, **options)
    judge.backward(d_out.double())

    coarse = table_dtype if table_dtype != torch.float32 else dtype
    limit = tolerance(coarse, call)
    assert_close(out.detach(), judge.detach(), limit, "out")
    for what, x, y in zip("qkv", leaves, doubles, strict=True):
        assert x.grad.dtype == dtype
        assert_close(x.grad, y.grad, 2 * limit, f"d_{what}")
    # Tables gather what every pair of every sequence and head contributes; those of
    # frequencies are as large as the positions, and mostly cancel.
    for what, x, y in zip(case.params, encoding.params, tables, strict=True):
        assert x.grad is not None and x.grad.dtype == table_dtype
        wide = 4 if what in ("alpha", "theta") else 2
        assert_close(x.grad, y.grad, wide * limit, f"d_{what}")


FAR = 1 << 20
RELATIVE = [
    n
    for n in CASES
    # Those that see absolute positions, or whose positions are a raster.
    if not n.startswith(("tupe", "swin", "fire", "mrope", "rope-2d", "rope-mixed"))
    and n != "rope-values-absolute"
]


@pytest.mark.parametrize("name", RELATIVE)
def test_far_positions(name):
    """Past a million, scores of relative encodings are those at the start.

    Angles of RoPE are exact to a float64 rounding of position times rate, so a
    shift moves nothing that float32 shows.
    """
    case, call = CASES[name], CALLS["causal"]
    q, k, v = inputs(call, torch.float32)
    near = torch.arange(call.k_len)
    encoding = case.encoding()
    formula, _ = case.judge(encoding.params)
    here = eager.attention(q.double(), k.double(), v.double(), formula, causal=True)
    there = lt.attention(
        q, k, v, encoding, causal=True, q_positions=near + FAR, k_positions=near + FAR
    )
    assert_close(there, here, tolerance(torch.float32, call), "out")


def test_reach_of_the_cases():
    """The positions of the calls fit the tables of the cases."""
    for call in CALLS.values():
        for name in ("q_positions", "k_positions"):
            if name in call.options:
                assert int(call.options[name].max()) < REACH
