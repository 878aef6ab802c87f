"""Attention with every encoding in plain torch operations: the judge of the tests.

Each encoding is written from its paper's formula, pair by pair, and runs in the
type of its inputs (float64 in the tests). Autograd gives the gradients. Nothing
here knows how the library lowers an encoding.

An encoding is a class with `logits(q, k, m, n, scale)` -> [B, H, Lq, Lk] for
q [B, H, Lq, D], k [B, H, Lk, D] and positions m [B, Lq], n [B, Lk], and
`values(p, m, n)` -> what it adds to the output, or None. One that rotates values
has `turn_values` and `turn_back` of its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def offsets(m: Tensor, n: Tensor) -> Tensor:
    """m - n: [B, Lq, Lk]."""
    return m[:, :, None] - n[:, None, :]


class Plain:
    """s = scale q.k"""

    scale_factor = 1.0  # the usual scale is 1 / sqrt(scale_factor * D)

    def logits(self, q, k, m, n, scale):
        return scale * q @ k.transpose(-1, -2)

    def values(self, p, m, n):
        return None

    def turn_values(self, v, n):
        return v

    def turn_back(self, out, m):
        return out


class Bias(Plain):
    """s = scale q.k + B, B by `bias(m, n)` -> [B, H, Lq, Lk]"""

    def logits(self, q, k, m, n, scale):
        return super().logits(q, k, m, n, scale) + self.bias(m, n)


class Alibi(Bias):
    def __init__(self, slopes: Tensor) -> None:
        self.slopes = slopes

    def bias(self, m, n):
        return -self.slopes[:, None, None] * offsets(m, n).abs()[:, None]


def t5_bucket(offset: Tensor, buckets: int, max_distance: int, bidirectional: bool):
    """The bucket of m - n; logarithms in float64, with exact powers kept exact."""
    distance, first = offset.clamp(min=0), torch.zeros_like(offset)
    if bidirectional:
        buckets //= 2
        first = (offset < 0).long() * buckets
        distance = offset.abs()
    exact = buckets // 2
    ratio = (distance.clamp(min=1).double() / exact).log()
    steps = ratio / math.log(max_distance / exact) * (buckets - exact)
    # One float64 rounding below a whole number still means that number.
    far = exact + (steps + 1e-9).floor().long()
    return first + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


class T5Bias(Bias):
    def __init__(self, table, max_distance=128, bidirectional=False) -> None:
        self.table, self.max_distance = table, max_distance
        self.bidirectional = bidirectional

    def bias(self, m, n):
        rows = t5_bucket(
            offsets(m, n), self.table.shape[0], self.max_distance, self.bidirectional
        )
        return self.table[rows].permute(0, 3, 1, 2)


class Kerple(Bias):
    def __init__(self, r1, r2, kind="logarithmic") -> None:
        self.r1, self.r2, self.kind = r1[:, None, None], r2[:, None, None], kind

    def bias(self, m, n):
        d = offsets(m, n).abs()[:, None].to(self.r1.dtype)
        if self.kind == "logarithmic":
            return -self.r1 * torch.log1p(self.r2 * d)
        # 0^r2 is 0 and stays so; keep the logarithm inside pow finite.
        power = torch.where(d > 0, d, 1.0) ** self.r2
        return -self.r1 * torch.where(d > 0, power, 0.0)


class Fire(Bias):
    def __init__(self, w1, b1, w2, b2, c, threshold, epsilon=1e-6) -> None:
        self.w1, self.b1, self.w2, self.b2 = w1, b1, w2, b2
        self.c, self.threshold, self.epsilon = c, threshold, epsilon

    def bias(self, m, n):
        def psi(x):
            return torch.log((self.c * x).abs() + 1)

        d = offsets(m, n).abs().to(self.w1.dtype)
        top = torch.maximum(m.to(self.w1.dtype), self.threshold.abs())
        x = psi(d) / (psi(top)[:, :, None] + self.epsilon)
        hidden = torch.relu(x[..., None] * self.w1 + self.b1)
        return (hidden @ self.w2.T + self.b2).permute(0, 3, 1, 2)


class Sandwich(Bias):
    def __init__(self, heads, dim=128, base=10000.0, dtype=torch.float64) -> None:
        self.ratios = 8 * torch.arange(1, heads + 1, dtype=dtype) / heads
        self.rates = base ** -(torch.arange(0, dim, 2, dtype=dtype) / dim)

    def bias(self, m, n):
        waves = (offsets(m, n)[..., None] * self.rates).cos().sum(-1)
        return waves[:, None] / self.ratios[:, None, None]


class SwinBias(Bias):
    def __init__(self, table, height, width, cls=False) -> None:
        self.table, self.height, self.width, self.cls = table, height, width, cls

    def bias(self, m, n):
        h, w, first = self.height, self.width, int(self.cls)

        def place(p):
            p = (p - first).clamp(min=0)
            return p // w, p % w

        (qy, qx), (ky, kx) = place(m), place(n)
        rows = (offsets(qy, ky) + h - 1) * (2 * w - 1) + offsets(qx, kx) + w - 1
        if self.cls:
            last = (2 * h - 1) * (2 * w - 1)
            from_cls, to_cls = (m == 0)[:, :, None], (n == 0)[:, None, :]
            rows = torch.where(from_cls, last, rows)
            rows = torch.where(to_cls, last + 1, rows)
            rows = torch.where(from_cls & to_cls, last + 2, rows)
        return self.table[rows].permute(0, 3, 1, 2)


def pick(scores: Tensor, rows: Tensor) -> Tensor:
    """scores [B, H, L, R], rows [B, L, L'] -> scores[b, h, i, rows[b, i, j]]."""
    index = rows[:, None].expand(-1, scores.shape[1], -1, -1)
    return scores.gather(-1, index)


def by_head(table: Tensor, heads: int) -> Tensor:
    return table if table.dim() == 3 else table.expand(heads, *table.shape)


class Shaw(Plain):
    def __init__(self, keys=None, values=None, r_min=0, r_max=0) -> None:
        self.keys, self.value_rows = keys, values
        self.r_min, self.r_max = r_min, r_max

    def rows(self, m, n):
        return offsets(m, n).clamp(self.r_min, self.r_max) - self.r_min

    def logits(self, q, k, m, n, scale):
        s = super().logits(q, k, m, n, scale)
        if self.keys is None:
            return s
        table = by_head(self.keys, q.shape[1])
        return s + scale * pick(q @ table.transpose(-1, -2), self.rows(m, n))

    def values(self, p, m, n):
        if self.value_rows is None:
            return None
        table = by_head(self.value_rows, p.shape[1])
        rows = self.rows(m, n)[:, None].expand_as(p)
        by_row = p.new_zeros(*p.shape[:3], table.shape[1]).scatter_add(-1, rows, p)
        return by_row @ table


class KeyOffset(Plain):
    def __init__(self, rows) -> None:
        self.table = rows

    def logits(self, q, k, m, n, scale):
        table = by_head(self.table, q.shape[1])
        rows = offsets(m, n).clamp(-(table.shape[1] // 2), table.shape[1] // 2)
        rows = rows + table.shape[1] // 2
        position = pick(q @ table.transpose(-1, -2), rows)
        return super().logits(q, k, m, n, scale) + scale * position


class TransformerXL(Plain):
    def __init__(self, r, u, v) -> None:
        self.r, self.u, self.v = r, u[:, None], v[:, None]

    def logits(self, q, k, m, n, scale):
        reach = self.r.shape[1] // 2
        rows = offsets(m, n).clamp(-reach, reach) + reach
        content = (q + self.u) @ k.transpose(-1, -2)
        position = pick((q + self.v) @ self.r.transpose(-1, -2), rows)
        return scale * (content + position)


def deberta_bucket(offset: Tensor, buckets: int, max_positions: int) -> Tensor:
    """clip(B(m - n) + span, 0, 2 span - 1), logarithms in float64."""
    if buckets == 0:
        return (offset + max_positions).clamp(0, 2 * max_positions - 1)
    mid = buckets // 2
    distance = offset.abs().clamp(min=mid).double()
    steps = (distance / mid).log() / math.log((max_positions - 1) / mid) * (mid - 1)
    # One float64 rounding above a whole number still means that number.
    far = (steps - 1e-9).ceil().long() + mid
    near = offset.abs() <= mid
    b = torch.where(near, offset, far * offset.sign())
    return (b + buckets).clamp(0, 2 * buckets - 1)


class Deberta(Plain):
    def __init__(
        self, c2p=None, p2c=None, position_buckets=0, max_relative_positions=0
    ) -> None:
        self.c2p, self.p2c = c2p, p2c
        self.buckets, self.max_positions = position_buckets, max_relative_positions
        self.scale_factor = 1.0 + (c2p is not None) + (p2c is not None)

    def logits(self, q, k, m, n, scale):
        s = q @ k.transpose(-1, -2)
        rows = deberta_bucket(offsets(m, n), self.buckets, self.max_positions)
        if self.c2p is not None:
            s = s + pick(q @ self.c2p.transpose(-1, -2), rows)
        if self.p2c is not None:
            to_content = k @ self.p2c.transpose(-1, -2)
            s = s + pick(to_content, rows.transpose(1, 2)).transpose(-1, -2)
        return scale * s


class Tupe(Plain):
    scale_factor = 2.0

    def __init__(self, q_pos, k_pos, bias=None, cls=None) -> None:
        self.q_pos, self.k_pos, self.bias, self.cls = q_pos, k_pos, bias, cls

    def logits(self, q, k, m, n, scale):
        a = self.q_pos[:, m].transpose(0, 1)
        c = self.k_pos[:, n].transpose(0, 1)
        position = scale * a @ c.transpose(-1, -2)
        if self.bias is not None:
            reach = self.bias.shape[1] // 2
            rows = offsets(m, n).clamp(-reach, reach) + reach
            position = position + self.bias[:, rows].transpose(0, 1)
        if self.cls is not None:
            theta = self.cls[:, :, None, None]
            to_cls = (n == 0)[:, None, None, :]
            position = torch.where(to_cls, theta[:, 1], position)
            from_cls = (m == 0)[:, None, :, None]
            position = torch.where(from_cls, theta[:, 0], position)
        return super().logits(q, k, m, n, scale) + position


class Rope(Plain):
    """Turns pair p of channels by angles(pos)[..., p]; `gain` on cos and sin."""

    def __init__(self, rates: Tensor, layout: str, gain: float = 1.0) -> None:
        self.rates, self.layout, self.gain = rates, layout, gain

    def angles(self, pos: Tensor) -> Tensor:
        return pos[..., None] * self.rates

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        angle = self.angles(pos)
        if angle.dim() == 3:
            angle = angle[:, None]
        else:  # [B, key heads, L, pairs]
            angle = angle.repeat_interleave(x.shape[1] // angle.shape[1], dim=1)
        cos, sin = angle.cos() * self.gain, angle.sin() * self.gain
        pairs = angle.shape[-1]
        turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        if self.layout == "halves":
            a, b = turned[..., :pairs], turned[..., pairs:]
        else:
            a, b = turned[..., 0::2], turned[..., 1::2]
        a, b = a * cos - b * sin, a * sin + b * cos
        if self.layout == "halves":
            return torch.cat([a, b, rest], dim=-1)
        return torch.cat([torch.stack([a, b], -1).flatten(-2), rest], dim=-1)

    def logits(self, q, k, m, n, scale):
        return super().logits(self.turn(q, m), self.turn(k, n), m, n, scale)


class RopeValues(Rope):
    """o = R_m^-1 sum p R_n v, or without the R_m^-1."""

    def __init__(self, rates, layout, relative) -> None:
        super().__init__(rates, layout)
        self.relative = relative

    def turn_values(self, v, n):
        return self.turn(v, n)

    def turn_back(self, out, m):
        return self.turn(out, -m) if self.relative else out


class RopeLearned(Rope):
    def __init__(self, alpha, layout, base=10000.0) -> None:
        super().__init__(rope_rates(2 * alpha.shape[-1], base) * alpha.exp(), layout)

    def angles(self, pos):
        if self.rates.dim() == 1:
            return super().angles(pos)
        return pos[:, None, :, None] * self.rates[:, None]


class RopeMixed(Rope):
    def __init__(self, theta, layout, width, prefix=0, offsets=(0.0, 0.0)) -> None:
        super().__init__(theta, layout)
        self.width, self.prefix, self.offsets = width, prefix, offsets

    def angles(self, pos):
        cell, rates = pos - self.prefix, self.rates
        if rates.dim() == 3:  # [key heads, pairs, 2]
            cell, rates = cell[:, None], rates[:, None]
        y = cell // self.width + self.offsets[0]
        x = cell % self.width + self.offsets[1]
        angle = y[..., None] * rates[..., 0] + x[..., None] * rates[..., 1]
        return torch.where((cell < 0)[..., None], 0.0, angle)


class Rope2D(Rope):
    def __init__(self, rates, layout, width) -> None:
        super().__init__(rates, layout)
        self.width = width

    def angles(self, pos):
        rows = (pos // self.width)[..., None] * self.rates
        columns = (pos % self.width)[..., None] * self.rates
        return torch.cat([rows, columns], dim=-1)


class MRope(Rope):
    def __init__(self, rates, layout, axis_of_pair: list[int]) -> None:
        super().__init__(rates, layout)
        self.shifts = torch.tensor([40, 20, 0])[axis_of_pair]

    def angles(self, pos):
        pos = pos[..., None]
        packed = (pos >> self.shifts) % 2**20
        return torch.where(pos >= 2**60, packed, pos) * self.rates


class XPos(Rope):
    def __init__(self, rates, layout, zeta, scale_base) -> None:
        super().__init__(rates, layout)
        self.zeta, self.scale_base = zeta, scale_base

    def logits(self, q, k, m, n, scale):
        a, b = self.turn(q, m), self.turn(k, n)
        exponent = offsets(m, n)[..., None] / self.scale_base
        fade = self.zeta**exponent
        if self.layout == "halves":
            a, b = a.unflatten(-1, (2, -1)), b.unflatten(-1, (2, -1))
            products = torch.einsum("bhicp,bhjcp->bhijp", a, b)
        else:
            a, b = a.unflatten(-1, (-1, 2)), b.unflatten(-1, (-1, 2))
            products = torch.einsum("bhipc,bhjpc->bhijp", a, b)
        return scale * (products * fade[:, None]).sum(-1)


def rope_rates(dim: int, base: float = 10000.0) -> Tensor:
    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def visible(shape, m, n, causal, window, key_lengths, q_segments, k_segments):
    """Which pairs see each other, [B, Lq, Lk]."""
    batch, q_len, k_len = shape
    seen = torch.ones(batch, q_len, k_len, dtype=torch.bool)
    offset = offsets(m, n)
    if causal:
        seen &= offset >= 0
    if window is not None:
        if isinstance(window, int):
            window = (window - 1, 0 if causal else window - 1)
        seen &= (offset <= window[0]) & (offset >= -window[1])
    if key_lengths is not None:
        ends = torch.as_tensor(key_lengths)[:, None, None]
        seen &= torch.arange(k_len)[None, None] < ends
    if q_segments is not None:
        q_segments = torch.as_tensor(q_segments).expand(batch, q_len)
        k_segments = torch.as_tensor(k_segments).expand(batch, k_len)
        seen &= offsets(q_segments, k_segments) == 0
    return seen


def attention(
    q,
    k,
    v,
    encoding=None,
    *,
    causal=False,
    scale=None,
    window=None,
    softcap=None,
    q_positions=None,
    k_positions=None,
    key_lengths=None,
    q_segments=None,
    k_segments=None,
    return_lse=False,
):
    """The same contract as locus.torch.attention, with everything materialised."""
    encoding = encoding or Plain()
    batch, heads, q_len, dim = q.shape
    k_len, group = k.shape[2], heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    if k_positions is None:
        k_positions = torch.arange(k_len)
    if q_positions is None:
        ends = torch.tensor(k_len)
        if key_lengths is not None:
            ends = torch.as_tensor(key_lengths)[:, None]
        q_positions = torch.arange(q_len) + (ends - q_len).clamp(min=0)
    m = torch.as_tensor(q_positions).expand(batch, q_len)
    n = torch.as_tensor(k_positions).expand(batch, k_len)
    if scale is None:
        scale = (encoding.scale_factor * dim) ** -0.5
    s = encoding.logits(q, k, m, n, scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    seen = visible(
        (batch, q_len, k_len), m, n, causal, window, key_lengths, q_segments, k_segments
    )[:, None]
    s = s.masked_fill(~seen, -math.inf)
    lse = s.logsumexp(-1)
    # A row that sees nothing: probabilities 0 instead of NaN.
    p = (s - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp()
    out = p @ encoding.turn_values(v, n)
    extra = encoding.values(p, m, n)
    out = encoding.turn_back(out if extra is None else out + extra, m)
    return (out, lse) if return_lse else out
