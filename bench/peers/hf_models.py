"""Eager attention of Hugging Face models, random weights, at the base sizes.

"core" rows have no projections on either side: q, k, v go in as the module would
have them (its projections are replaced by the identity where it has no function
for the rest). "module" rows run the whole attention module, and Locus between
the same projections with the same weights. Each model's class knows

    peer(x):        the model's own code
    project(x):     q, k, v [1, H, N, D] and the tensors of the position term
    encoding(...):  those tensors as an encoding of locus.torch
    bias(...):      those tensors by the book
    finish(o, x):   what follows attention, output projection or nothing

Masks: none where the model allows none; BLOOM's causal mask and DeBERTa's mask
of ones are made before the call, as the models make them once for all layers.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import BloomConfig, DebertaV2Config, T5Config, XLNetConfig
from transformers.models.bloom.modeling_bloom import (
    BloomAttention,
    build_alibi_tensor,
)
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
    build_relative_position,
)
from transformers.models.t5.modeling_t5 import T5Attention, eager_attention_forward
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

import locus_attn.torch as lt

from . import formulas
from .case import normal


def split(x: Tensor, heads: int) -> Tensor:
    """[1, N, H D] -> [1, H, N, D], a view."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(x: Tensor) -> Tensor:
    """[1, H, N, D] -> [1, N, H D]."""
    return x.transpose(1, 2).flatten(2)


class Model(abc.ABC, nn.Module):
    """One layer's attention. `inputs` are what gets gradients besides weights."""

    title: str
    heads: int
    dim = 64
    causal = False

    def __init__(self, length: int, core: bool) -> None:
        super().__init__()
        self.length, self.core = length, core
        self.width = self.heads * self.dim

    @property
    def scale(self) -> float:
        return self.dim**-0.5

    def x(self) -> Tensor:
        """The input: hidden states, or in core rows what projections would give."""
        return normal(0, 1, self.length, self.width)

    def out_shape(self) -> tuple[int, ...]:
        return (1, self.length, self.width)

    @abc.abstractmethod
    def peer(self, x: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Sequence[Tensor]]: ...

    @abc.abstractmethod
    def encoding(self, tensors: Sequence[Tensor]) -> lt.Encoding: ...

    @abc.abstractmethod
    def bias(self, q: Tensor, k: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """What is added to scale q.k: [H, N, N]."""

    def finish(self, o: Tensor, x: Tensor) -> Tensor:
        return join(o)

    def state(self) -> list[Tensor]:
        """O(N^2) tensors that the peer is given."""
        return []

    def projection_flops(self) -> float:
        """Of one forward pass."""
        return 0.0

    def with_locus(self, x: Tensor) -> Tensor:
        q, k, v, tensors = self.project(x)
        o = lt.attention(
            q, k, v, self.encoding(tensors), scale=self.scale, causal=self.causal
        )
        return self.finish(o, x)

    def by_the_book(self, x: Tensor) -> Tensor:
        q, k, v, tensors = self.project(x)
        bias = self.bias(q, k, tensors)
        o = formulas.attend(q, k, v, scale=self.scale, bias=bias, causal=self.causal)
        return self.finish(o, x)


class T5(Model):
    """T5 base: s = q.k + B[h, bucket], no scale."""

    title, heads, scale = "T5", 12, 1.0

    def __init__(self, length: int, core: bool, first: bool = False) -> None:
        """first: the layer that makes the bias; the others are given it."""
        super().__init__(length, core)
        config = T5Config(d_model=self.width, num_heads=self.heads, d_kv=self.dim)
        config._attn_implementation = "eager"
        self.module = T5Attention(config, has_relative_attention_bias=True).eval()
        nn.init.normal_(self.module.relative_attention_bias.weight)
        # As T5 initialises it: q.k has variance 1 without a scale.
        nn.init.normal_(self.module.q.weight, std=(self.width * self.dim) ** -0.5)
        self.first = first
        self._bias = None
        if not first:
            bias = self.module.compute_bias(length, length).detach()
            self._bias = bias.contiguous()
        if core:
            q = normal(0, 1, length, self.width, std=self.dim**-0.5)
            k, v = (normal(seed, 1, length, self.width) for seed in (1, 2))
            self._qkv = torch.cat([q, k, v], -1)

    def x(self) -> Tensor:
        return self._qkv if self.core else super().x()

    def state(self) -> list[Tensor]:
        return [] if self._bias is None else [self._bias]

    def peer(self, x: Tensor) -> Tensor:
        if self.core:
            q, k, v, _ = self.project(x)
            return eager_attention_forward(
                self.module, q, k, v, None, scaling=1.0, position_bias=self._bias
            )[0].flatten(2)
        return self.module(x, position_bias=self._bias)[0]

    def project(self, x: Tensor):
        table = [self.module.relative_attention_bias.weight]
        parts = (
            x.chunk(3, -1)
            if self.core
            else (self.module.q(x), self.module.k(x), self.module.v(x))
        )
        return *(split(part, self.heads) for part in parts), table

    def encoding(self, tensors):
        kind = lt.describe("T5Bias", "table", max_distance=128, bidirectional=True)
        return lt.Encoding(kind, tensors)

    def bias(self, q, k, tensors):
        return formulas.t5_bias(tensors[0], self.length)

    def finish(self, o: Tensor, x: Tensor) -> Tensor:
        return join(o) if self.core else self.module.o(join(o))

    def projection_flops(self) -> float:
        return 0.0 if self.core else 4 * 2 * self.length * self.width**2


class Bloom(Model):
    """BLOOM 560M: s = q.k / sqrt(D) + slope_h j, causal."""

    title, heads, causal = "BLOOM", 16, True

    def __init__(self, length: int, core: bool) -> None:
        super().__init__(length, core)
        config = BloomConfig(hidden_size=self.width, n_head=self.heads)
        self.module = BloomAttention(config, layer_idx=0).eval()
        if core:
            self.module.query_key_value = nn.Identity()
            self.module.dense = nn.Identity()
        ones = torch.ones(1, length)
        self._alibi = build_alibi_tensor(ones, self.heads, torch.float32)
        least = torch.finfo(torch.float32).min
        self._mask = torch.full((1, 1, length, length), least).triu(1)

    def x(self) -> Tensor:
        return normal(0, 1, self.length, self.width * (3 if self.core else 1))

    def state(self) -> list[Tensor]:
        return [self._mask]

    def _residual(self, x: Tensor) -> Tensor:
        return x[..., : self.width]

    def peer(self, x: Tensor) -> Tensor:
        return self.module(x, self._residual(x), self._alibi, self._mask)[0]

    def project(self, x: Tensor):
        q, k, v = self.module._reshape(self.module.query_key_value(x))
        return q, k, v, []

    def encoding(self, tensors):
        return lt.Alibi(self.heads).encoding()

    def bias(self, q, k, tensors):
        return formulas.alibi_bias(self.heads, self.length).to(q.dtype)

    def finish(self, o: Tensor, x: Tensor) -> Tensor:
        return self.module.dense(join(o)) + self._residual(x)

    def projection_flops(self) -> float:
        return 0.0 if self.core else 4 * 2 * self.length * self.width**2


class Deberta(Model):
    """DeBERTa-v3 base: s = (q.k + q.K[b] + k.Q[b]) / sqrt(3 D)."""

    title, heads = "DeBERTa-v2", 12
    buckets, reach = 256, 512

    def __init__(self, length: int, core: bool) -> None:
        super().__init__(length, core)
        config = DebertaV2Config(
            hidden_size=self.width,
            num_attention_heads=self.heads,
            relative_attention=True,
            position_buckets=self.buckets,
            max_relative_positions=self.reach,
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
        )
        self.module = DisentangledSelfAttention(config).eval()
        if core:
            for name in ("query_proj", "key_proj", "value_proj"):
                setattr(self.module, name, nn.Identity())
        self.rows = nn.Parameter(normal(3, 2 * self.buckets, self.width))
        self._mask = torch.ones(1, 1, length, length, dtype=torch.bool)
        like = torch.empty(length, 1)
        self._buckets = build_relative_position(like, like, self.buckets, self.reach)

    @property
    def scale(self) -> float:
        return (3 * self.dim) ** -0.5

    def state(self) -> list[Tensor]:
        return [self._mask, self._buckets]

    def peer(self, x: Tensor) -> Tensor:
        return self.module(
            x, self._mask, relative_pos=self._buckets, rel_embeddings=self.rows
        )[0]

    def project(self, x: Tensor):
        m = self.module
        parts = (m.query_proj(x), m.key_proj(x), m.value_proj(x))
        tables = (m.key_proj(self.rows), m.query_proj(self.rows))
        return (
            *(split(part, self.heads) for part in parts),
            [split(table[None], self.heads)[0] for table in tables],
        )

    def encoding(self, tensors):
        settings = {
            "position_buckets": self.buckets,
            "max_relative_positions": self.reach,
        }
        return lt.Encoding(lt.describe("Deberta", "c2p", "p2c", **settings), tensors)

    def bias(self, q, k, tensors):
        sizes = (self.buckets, self.reach)
        return self.scale * formulas.deberta_bias(q, k, tuple(tensors), sizes)

    def projection_flops(self) -> float:
        if self.core:
            return 0.0
        return 2 * (3 * self.length + 4 * self.buckets) * self.width**2


class XLNet(Model):
    """XLNet base: s = ((q + u).k + (q + v).R) / sqrt(D)."""

    title, heads = "XLNet", 12

    def __init__(self, length: int, core: bool) -> None:
        super().__init__(length, core)
        config = XLNetConfig(
            d_model=self.width, n_head=self.heads, n_layer=1, d_inner=self.width
        )
        self.module = XLNetRelativeAttention(config).eval()
        for number, (name, weight) in enumerate(self.module.named_parameters()):
            if not name.startswith("layer_norm"):
                weight.data = normal(number, *weight.shape, std=self.width**-0.5)
        # Sinusoids of the offsets N .. 1 - N, as the model makes them: [2 N, 1, d].
        model = XLNetModel(config)
        self.rows = model.relative_positional_encoding(length, length, bsz=1)

    def x(self) -> Tensor:
        """[N, 1, d], the model's order; core: q, k, v side by side and R below."""
        if not self.core:
            return normal(0, self.length, 1, self.width)
        return normal(0, 1, self.length, 3 * self.width)

    def out_shape(self) -> tuple[int, ...]:
        return (self.length, 1, self.width)

    def _core_heads(self, x: Tensor):
        """q, k, v [N, 1, H, D] and R [2 N, 1, H, D]."""
        parts = [
            part.unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for part in x.chunk(3, -1)
        ]
        r = self.rows.to(x.dtype).unflatten(-1, (self.heads, -1))
        return *parts, r

    def peer(self, x: Tensor) -> Tensor:
        if self.core:
            return self.module.rel_attn_core(*self._core_heads(x)).flatten(2)
        return self.module(x, None, None, None, self.rows, None)[0]

    def project(self, x: Tensor):
        m = self.module
        if self.core:
            *parts, r = self._core_heads(x)
        else:
            parts = [torch.einsum("ibh,hnd->ibnd", x, w) for w in (m.q, m.k, m.v)]
            r = torch.einsum("ibh,hnd->ibnd", self.rows.to(x.dtype), m.r)
        # Offset N is never used; Locus counts offsets upwards.
        r = r[1:, 0].flip(0).transpose(0, 1)
        qkv = (part.permute(1, 2, 0, 3) for part in parts)
        return *qkv, [r, m.r_w_bias, m.r_r_bias]

    def encoding(self, tensors):
        return lt.Encoding(lt.describe("TransformerXL", "r", "u", "v"), tensors)

    def bias(self, q, k, tensors):
        return self.scale * formulas.xl_bias(q, k, *tensors)

    def finish(self, o: Tensor, x: Tensor) -> Tensor:
        o = o.permute(2, 0, 1, 3)
        return o.flatten(2) if self.core else self.module.post_attention(x, o)

    def projection_flops(self) -> float:
        return 0.0 if self.core else (4 + 2) * 2 * self.length * self.width**2


MODELS = (T5, Bloom, Deberta, XLNet)
