"""Attention from the textbook in float64, N x N, to judge the fused one."""

import numpy as np


def attention(
    q,
    k,
    v,
    *,
    bias=None,
    values=None,
    causal=False,
    scale=None,
    window=None,
    softcap=None,
    q_positions=None,
    k_positions=None,
    key_lengths=None,
    q_segments=None,
    k_segments=None,
):
    """softmax(scale q.k + bias) v, and the log of the denominator.

    q [B, Hq, Lq, D], k and v [B, Hkv, Lk, D]. bias(q, m, n) and values(m, n) are
    functions of positions m [Lq, 1] and n [1, Lk]: what is added to the scores of
    one sequence [Hq, Lq, Lk] (q [Hq, Lq, D] is there for tables) and to the values
    [.., Lq, Lk, D]. window is (left, right).
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, heads, q_len, dim = q.shape
    k_len = k.shape[2]
    k, v = (np.repeat(x, heads // k.shape[1], axis=1) for x in (k, v))
    scale = dim**-0.5 if scale is None else scale

    def rows(given, length, default):
        given = default if given is None else np.asarray(given)
        return np.broadcast_to(given, (batch, length))

    ends = np.full((batch, 1), k_len)
    if key_lengths is not None:
        ends = np.asarray(key_lengths)[:, None]
    m_all = rows(q_positions, q_len, np.arange(q_len) + np.maximum(ends - q_len, 0))
    n_all = rows(k_positions, k_len, np.arange(k_len))
    q_seg = rows(q_segments, q_len, np.zeros(q_len, int))
    k_seg = rows(k_segments, k_len, np.zeros(k_len, int))
    out = np.zeros((batch, heads, q_len, v.shape[3]))
    lse = np.full((batch, heads, q_len), -np.inf)
    for b in range(batch):
        m, n = m_all[b][:, None], n_all[b][None, :]
        s = scale * np.einsum("hid,hjd->hij", q[b], k[b])
        if bias is not None:
            s = s + bias(q[b] * scale, m, n)
        if softcap is not None:
            s = softcap * np.tanh(s / softcap)
        seen = (q_seg[b][:, None] == k_seg[b][None, :]) & (
            np.arange(k_len)[None, :]
            < (k_len if key_lengths is None else key_lengths[b])
        )
        if causal:
            seen &= n <= m
        if window is not None:
            seen &= (m - n <= window[0]) & (m - n >= -window[1])
        s = np.where(seen, s, -np.inf)
        top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
        p = np.exp(s - np.where(np.isfinite(top), top, 0.0))
        total = p.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            lse[b] = (np.log(total) + np.where(np.isfinite(top), top, 0.0))[..., 0]
        p = np.divide(p, total, out=np.zeros_like(p), where=total > 0)
        out[b] = np.einsum("hij,hjd->hid", p, v[b])
        if values is not None:
            out[b] += np.einsum("hij,ijd->hid", p, values(m, n))
    return out, lse


def epsilon(dtype) -> float:
    """Relative spacing of a type, by its bits of fraction."""
    return {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[str(dtype)]


def close(got, want, dtype="float32", factor=4.0, dim=64):
    """|got - want| within factor * eps * sqrt(dim) of the largest |want|."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    if not finite.any():
        return
    size = max(1.0, np.abs(want[finite]).max())
    worst = np.abs(got[finite] - want[finite]).max()
    bound = factor * epsilon(dtype) * dim**0.5 * size
    assert worst <= bound, f"off by {worst:.3g}, allowed {bound:.3g}"
