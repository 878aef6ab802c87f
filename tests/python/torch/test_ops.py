"""The operators: registration, compilation, and what they refuse."""

from __future__ import annotations

import gc
import os
import signal
import time

import numpy as np
import pytest
import torch
from encoding_cases import DIM, HEADS, KV_HEADS, cases

import locus_attn as locus
import locus_attn.torch as lt
from locus_attn.torch import kinds, ops

LENGTH = 13
CASES = cases()
NO_OPERANDS = (None,) * 4
NO_OPTIONS = (False, False, *[None] * 12, 0.0, None, None)


def qkv(dtype=torch.float32, grad=True, length=LENGTH):
    gen = torch.Generator().manual_seed(3)
    shapes = [(2, h, length, DIM) for h in (HEADS, KV_HEADS, KV_HEADS)]
    return [
        torch.randn(s, generator=gen).to(dtype).requires_grad_(grad) for s in shapes
    ]


@pytest.mark.parametrize("name", ["none", "t5", "shaw", "transformer-xl", "rope"])
def test_opcheck_attention(name):
    encoding = CASES[name].encoding(grad=True)
    args = (*qkv(), encoding.params, encoding.kind, *NO_OPERANDS, *NO_OPTIONS)
    torch.library.opcheck(ops.attention_op, args)


def test_opcheck_attention_with_every_option():
    where = torch.arange(LENGTH) * 2
    parts = torch.arange(LENGTH) // 5
    lengths = torch.tensor([LENGTH, 9])
    mask = torch.rand(2, 1, LENGTH, LENGTH) > 0.3
    options = (
        *(True, True, 0.3, 7, 0, 9, 5.0, where, where, lengths, parts, parts),
        *(mask, torch.tensor([3, 0]), 0.25, torch.tensor(7), 1),
    )
    operands = (
        torch.randn(2, 1, LENGTH, requires_grad=True),
        torch.randn(1, HEADS, LENGTH, LENGTH, requires_grad=True),
        torch.randn(HEADS, requires_grad=True),
        None,
    )
    args = (*qkv(), [], "", *operands, *options)
    torch.library.opcheck(ops.attention_op, args)


def test_opcheck_attention_backward():
    encoding = CASES["t5"].encoding()
    q, k, v = qkv(grad=False)
    out, lse = lt.attention(q, k, v, encoding, return_lse=True)
    grads = (torch.ones_like(out), torch.zeros_like(lse))
    args = (*grads, q, k, v, out, lse, encoding.params, encoding.kind)
    rest = (*NO_OPERANDS, False, *NO_OPTIONS)
    torch.library.opcheck(ops.attention_backward_op, (*args, *rest))
    by_token = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    args = (*grads, *by_token, out, lse, encoding.params, encoding.kind)
    torch.library.opcheck(ops.attention_backward_op, (*args, *rest))


@pytest.mark.parametrize("inverse", [False, True])
def test_opcheck_rotate(inverse):
    kind = lt.Rope(DIM, "halves").kind
    q = qkv()[0]
    torch.library.opcheck(ops.rotate_op, (q, kind, None, inverse))
    by_token = q.transpose(1, 2).contiguous().transpose(1, 2)
    torch.library.opcheck(ops.rotate_op, (by_token, kind, None, inverse))


def test_opcheck_embed():
    kind = lt.Sinusoidal(DIM).kind
    where = torch.tensor([[3, 100_000], [0, 7]])
    torch.library.opcheck(ops.embed_op, (where, kind, DIM, torch.float32))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: lt.T5Bias(HEADS), lambda: lt.Rope(DIM, "halves")]
)
def test_compiles_to_one_graph(make, dynamic):
    module = make()

    def loss(q, k, v):
        out = lt.attention(q, k, v, module, causal=True, window=9)
        return out.square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    for length in (LENGTH, LENGTH + 4):
        leaves = qkv(length=length)
        wanted = [*leaves, *module.parameters()]
        expected = torch.autograd.grad(loss(*leaves), wanted)
        actual = torch.autograd.grad(compiled(*leaves), wanted)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b)


def test_compiles_a_model():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.position = lt.Sinusoidal(DIM)
            self.rope = lt.Rope(DIM, "interleaved")
            self.bias = lt.Shaw(DIM, -3, 3)

        def forward(self, x):
            x = self.position(x)[:, None]
            q = self.rope.rotate(x)
            return self.bias(q, x, x, causal=True).sum()

    layer = Layer()
    x = torch.randn(2, LENGTH, DIM)
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))


def test_exports(tmp_path):
    """A graph with the operators is saved, loaded and run."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = lt.T5Bias(HEADS)
            self.rope = lt.Rope(DIM, "halves")

        def forward(self, q, k, v):
            return self.bias(self.rope.rotate(q), k, v, causal=True)

    layer, leaves = Layer(), tuple(qkv(grad=False))
    path = tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(layer, leaves), path)
    loaded = torch.export.load(path).module()
    assert torch.equal(loaded(*leaves), layer(*leaves))


def test_encoding_over_own_tensors():
    """Views, transposes and float64 tables get their gradients."""
    leaves = qkv(grad=False)
    rows = torch.randn(HEADS, 8, dtype=torch.float64, requires_grad=True)
    bias = lt.encoding("T5Bias", table=rows.T, max_distance=20)
    lt.attention(*leaves, bias, causal=True).square().sum().backward()
    table = rows.detach().T.float().contiguous().requires_grad_()
    same = lt.encoding("T5Bias", table=table, max_distance=20)
    lt.attention(*leaves, same, causal=True).square().sum().backward()
    torch.testing.assert_close(rows.grad.T.float(), table.grad)
    absent = lt.encoding("Shaw", keys=None, values=torch.zeros(3, DIM), r_min=-1)
    assert kinds.param_names(absent.kind) == ("values",)


def test_autocast():
    """Mixed arguments meet in bfloat16, as with torch's own attention."""
    q, k, v = qkv()
    with torch.autocast("cpu", torch.bfloat16):
        out = lt.attention(q, k.bfloat16(), v)
    assert out.dtype == torch.bfloat16
    expected = lt.attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
    assert torch.equal(out, expected)
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_checkpointing():
    leaves, module = qkv(), lt.T5Bias(HEADS)
    wanted = [*leaves, *module.parameters()]

    def loss(*x):
        return module(*x, causal=True).square().sum()

    again = torch.utils.checkpoint.checkpoint(loss, *leaves, use_reentrant=False)
    grads = [torch.autograd.grad(y, wanted) for y in (again, loss(*leaves))]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_forward_mode_is_refused():
    q, k, v = qkv(grad=False)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        with pytest.raises(NotImplementedError, match="reverse-mode"):
            lt.attention(dual, k, v)
        assert lt.attention(q, k, v).shape == q.shape


def test_native_encodings_are_constants():
    """An encoding of `locus` works beside gradients of q, k and v."""
    leaves = qkv()
    table = torch.randn(8, HEADS)
    native = locus.T5Bias(table)
    module = lt.Encoding(lt.describe("T5Bias", "table"), [table])
    outs = [lt.attention(*leaves, e, causal=True) for e in (native, module)]
    grads = [torch.autograd.grad(o.square().sum(), leaves) for o in outs]
    assert torch.equal(outs[0], outs[1])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_native_encodings_are_let_go():
    before = len(kinds._held)
    out = lt.attention(*qkv(), locus.Alibi(HEADS))
    assert len(kinds._held) == before + 1
    out.sum().backward()
    del out
    gc.collect()
    assert len(kinds._held) == before


def test_direct_and_operator_paths_agree():
    leaves = qkv()
    encoding = CASES["t5"].encoding()
    with torch.no_grad():
        direct, lse = lt.attention(*leaves, encoding, causal=True, return_lse=True)
    out, also = lt.attention(*leaves, encoding, causal=True, return_lse=True)
    assert direct.grad_fn is None and out.grad_fn is not None
    assert torch.equal(direct, out) and torch.equal(lse, also)


def test_threads_do_not_change_a_bit():
    leaves = qkv()
    encoding = CASES["deberta"].encoding(grad=True)
    wanted = [*leaves, *encoding.params]
    results = []
    for threads in (1, 2, 3):
        out = lt.attention(*leaves, encoding, threads=threads)
        results.append([out, *torch.autograd.grad(out.square().sum(), wanted)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_works_in_a_forked_process():
    """OpenMP's threads do not come along."""
    leaves = qkv(grad=False, length=600)
    out = lt.attention(*leaves, threads=2)
    child = os.fork()
    if child == 0:
        again = lt.attention(*leaves, threads=2)
        os._exit(0 if torch.equal(again, out) else 1)
    for _ in range(100):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child waits forever")
    assert status == 0


def test_strides_do_not_matter():
    """Transposed, sliced, expanded and broadcast arguments, and d_out likewise."""
    x = torch.randn(2, LENGTH, HEADS, 3 * DIM)
    q, k, v = (t.transpose(1, 2) for t in x.split(DIM, dim=-1))
    v = v[:, :1].expand(-1, HEADS, -1, -1)
    dense = [t.contiguous().requires_grad_() for t in (q, k, v)]
    loose = [t.detach().requires_grad_() for t in (q, k, v)]
    outs = [lt.attention(*t) for t in (loose, dense)]
    torch.testing.assert_close(*outs)
    for out in outs:
        out.sum().backward()
    for a, b in zip(loose, dense, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("length", [3, LENGTH, 300])
@pytest.mark.parametrize("graph", [False, True])
def test_results_lie_as_models_read_them(length, graph):
    """Heads of a token side by side, gradients in the order of their tensor: joining
    the heads, or handing a gradient to a projection, copies nothing."""
    x = torch.randn(2, length, HEADS, 3 * DIM, requires_grad=graph)
    q, k, v = (t.transpose(1, 2) for t in x.split(DIM, dim=-1))
    out, lse = lt.attention(q, k, v, causal=True, return_lse=True)
    assert out.transpose(1, 2).is_contiguous() and lse.is_contiguous()
    if not graph:
        return
    by_head = [t.detach().contiguous() for t in (q, k, v)]
    for given, contiguous in ((q, (0, 2, 1, 3)), (by_head[0], (0, 1, 2, 3))):
        tensors = [t.detach().requires_grad_() for t in (given, *by_head[1:])]
        result = lt.attention(*tensors, causal=True).sum()
        d_q, d_k, d_v = torch.autograd.grad(result, tensors)
        assert d_q.permute(contiguous).is_contiguous()
        assert d_k.is_contiguous() and d_v.is_contiguous()


def test_empty_inputs():
    q, k, v = qkv()
    out = lt.attention(q[:, :, :0], k, v)
    assert out.shape == (2, HEADS, 0, DIM)
    blind = lt.attention(q, k[:, :, :0], v[:, :, :0])
    assert torch.equal(blind, torch.zeros_like(q))
    blind.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("scaling", [None, {"rope_type": "yarn", "factor": 4.0}])
def test_rotate_gradients(inverse, scaling):
    """The transpose of the rotation, gain included, by its definition."""
    if scaling is not None:
        scaling = {**scaling, "original_max_position_embeddings": 64}
    rope = lt.Rope(DIM, "halves", rotary_dim=DIM - 2, scaling=scaling)
    where = torch.tensor([[5, 9, 2], [0, 1, 77]])
    x = torch.randn(2, 1, 3, DIM, requires_grad=True)
    y = rope.rotate(x, where, inverse)
    d_y = torch.randn_like(y)
    (d_x,) = torch.autograd.grad(y, x, d_y)
    unit = torch.eye(DIM)[:, None, None, None].expand(DIM, 2, 1, 3, DIM)
    for c in range(DIM):
        column = rope.rotate(unit[c], where, inverse)
        torch.testing.assert_close(d_x[..., c], (column * d_y).sum(-1))


def test_rotate_in_double():
    """gradcheck differentiates the rotation itself, gain and all."""
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    x = torch.randn(1, 2, 3, DIM, dtype=torch.float64, requires_grad=True)
    for layout in ("halves", "interleaved"):
        rope = lt.Rope(DIM, layout, scaling=scaling)
        where = torch.tensor([3, 100_000, 7])
        assert torch.autograd.gradcheck(lambda y: rope.rotate(y, where), x)  # noqa: B023


def test_negated_views():
    """A conjugate's imaginary part is stored with the other sign."""
    z = torch.randn(1, HEADS, LENGTH, DIM, dtype=torch.complex64)
    q = z.conj().imag
    assert q.is_neg()
    k = torch.randn(1, HEADS, LENGTH, DIM)
    assert torch.equal(lt.attention(q, k, k), lt.attention(q.clone(), k, k))
    assert torch.equal(lt.attention(q, k, k), lt.attention(-z.imag, k, k))


def test_lse_is_the_logarithm_of_the_sum():
    q, k, v = qkv(grad=False)
    _, lse = lt.attention(q, k, v, return_lse=True)
    scores = q @ k.repeat_interleave(2, 1).mT / DIM**0.5
    torch.testing.assert_close(lse, scores.logsumexp(-1))


def merged(q, k, v, detach):
    """Attention over two halves of the keys, joined by their lse."""
    outs, lses = [], []
    for part in (slice(0, 6), slice(6, LENGTH)):
        out, lse = lt.attention(q, k[:, :, part], v[:, :, part], return_lse=True)
        outs.append(out)
        lses.append(lse.detach() if detach else lse)
    weights = torch.stack(lses).softmax(0)
    return sum(w[..., None] * out for w, out in zip(weights, outs, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_of_lse(compiled):
    """What is built on lse has the gradients of one call."""
    q, k, v = qkv()
    run = torch.compile(merged, backend="aot_eager") if compiled else merged
    joined = run(q, k, v, False)
    whole = lt.attention(q, k, v)
    torch.testing.assert_close(joined, whole)
    d_out = torch.randn_like(whole)
    for x, y in zip(
        torch.autograd.grad(joined, (q, k, v), d_out),
        torch.autograd.grad(whole, (q, k, v), d_out),
        strict=True,
    ):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("compiled", [False, True])
def test_lse_as_data_leaves_gradients_alone(compiled):
    """Returned and unused, detached, or in a figure that is not differentiated."""

    def run(q, k, v):
        out, lse = lt.attention(q, k, v, return_lse=True)
        return out * lse.detach().sigmoid()[..., None], lse

    def expected(q, k, v):
        scores = q @ k.repeat_interleave(2, 1).mT / DIM**0.5
        out = scores.softmax(-1) @ v.repeat_interleave(2, 1)
        return out * scores.logsumexp(-1).detach().sigmoid()[..., None]

    leaves, same = qkv(), qkv()
    forward = torch.compile(run, backend="aot_eager") if compiled else run
    out, lse = forward(*leaves)
    assert float(lse.max()) > 0
    out.square().sum().backward()
    expected(*same).square().sum().backward()
    for x, y in zip(leaves, same, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_window_must_be_integers():
    q, k, v = qkv(grad=False)
    for window in (3.7, (3.7, 1.2), (3, 1.0), "ab", ("a", "b"), True, (1, False), {}):
        with pytest.raises(TypeError, match="window must be an integer"):
            lt.attention(q, k, v, window=window)
    for window in ((3,), (1, 2, 3)):
        with pytest.raises(ValueError, match="window must be an integer or a pair"):
            lt.attention(q, k, v, window=window)

    class Verse:
        def __repr__(self):
            return "one line\nand another\n" * 100

    for window in (Verse(), (3, Verse()), (Verse(),) * 3, [Verse()]):
        with pytest.raises((TypeError, ValueError)) as error:
            lt.attention(q, k, v, window=window)
        assert "\n" not in str(error.value) and len(str(error.value)) < 200
    with pytest.raises(ValueError, match="at least 1"):
        lt.attention(q, k, v, window=0)
    for got, plain in (
        (np.int64(3), 3),
        ((np.int64(3), np.int32(1)), (3, 1)),
        ([3, 1], (3, 1)),
    ):
        want = lt.attention(q, k, v, window=plain)
        assert torch.equal(lt.attention(q, k, v, window=got), want)


@pytest.mark.parametrize("grad", [False, True])
def test_a_layer_of_a_model_stands_for_its_encoding(grad):
    """As in locus.attention: the rest of the call comes from options()."""
    config = {
        "model_type": "mistral",
        "hidden_size": HEADS * DIM,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
        "rope_theta": 100.0,
        "sliding_window": 5,
    }
    layer = locus.from_config(config)
    assert layer.options()["window"] == (4, 0)
    q, k, v = qkv(grad=grad)
    got = lt.attention(q, k, v, layer, **layer.options())
    plain = [x.detach().numpy() for x in (q, k, v)]
    want = locus.attention(*plain, layer, **layer.options())
    assert np.array_equal(got.detach().numpy(), np.asarray(want))
    assert not torch.allclose(got, lt.attention(q, k, v, **layer.options()))
    turned = lt.rotate(q, layer)
    assert torch.equal(turned, lt.rotate(q, layer.encoding))
    if grad:
        got.sum().backward()
        assert q.grad.abs().max() > 0


def test_refusals():
    q, k, v = qkv(grad=False)
    with pytest.raises(TypeError, match=r"k must be float32.*float64"):
        lt.attention(q, k.double(), v)
    with pytest.raises(TypeError, match="one type"):
        lt.attention(q, k.bfloat16(), v)
    with pytest.raises(ValueError, match="v must be on the CPU, got device meta"):
        lt.attention(q, k, v.to("meta"))
    with pytest.raises(ValueError, match=r"q must be \[batch, heads"):
        lt.attention(q[0], k, v)
    with pytest.raises(TypeError, match=r"q must be a torch.Tensor, got ndarray"):
        lt.attention(q.numpy(), k, v)
    with pytest.raises(TypeError, match="q_positions must be integers"):
        lt.attention(q, k, v, q_positions=torch.rand(LENGTH))
    with pytest.raises(TypeError, match="encoding must be"):
        lt.attention(q, k, v, "rope")
    with pytest.raises(TypeError, match="without an encoding"):
        lt.attention(q, k, v, torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        lt.attention(q, k, v, window=0)
    with pytest.raises(ValueError, match="does not describe"):
        lt.attention(q, k, v, lt.Encoding("nonsense"))
    with pytest.raises(ValueError):
        lt.attention(q, k[:, :, :, :4], v)
    with pytest.raises(ValueError):
        lt.attention(q, k, v, lt.Alibi(HEADS + 1))
    with pytest.raises(TypeError, match="rotary"):
        lt.rotate(q, None)


def test_refusals_with_gradients():
    """The operator refuses what the direct call refuses."""
    q, k, v = qkv()
    with pytest.raises(ValueError):
        lt.attention(q, k[:, :, :, :4], v)
    with pytest.raises(ValueError):
        lt.attention(q, k, v, lt.Alibi(HEADS + 1))


def test_second_derivatives_are_refused():
    q, k, v = qkv()
    out = lt.attention(q, k, v)
    (d_q,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        d_q.sum().backward()


def test_a_result_beyond_memory_is_a_memory_error():
    q = torch.zeros(1, 1, 1, 8).expand(1, 1 << 20, 1 << 20, 8)
    k = torch.zeros(1, 1, 1, 8)
    with pytest.raises(MemoryError, match="there is not enough memory for this call"):
        lt.attention(q, k, k)
