"""Values of schemes whose code is in no release of transformers; see golden.py.

Written out from the published formulas, in float64, without Locus. They judge the
reader, as the other files do, but they are no other program's output.
"""

from __future__ import annotations

import math

import torch
from golden_tables import Case, numbers

TOKENS = 9


def draw(heads: int, dim: int) -> torch.Tensor:
    """[heads, tokens, dim], as float32 has them."""
    return torch.randn(heads, TOKENS, dim).double()


def layer(config: Case, q: torch.Tensor, k: torch.Tensor, logits: torch.Tensor) -> Case:
    """A causal layer: softmax over the keys that are not ahead."""
    ahead = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)
    prob = logits.masked_fill(ahead, -math.inf).softmax(-1)
    return {
        "name": "layer",
        "config": config,
        "tensors": {},
        "q": numbers(q),
        "k": numbers(k),
        "prob": numbers(prob),
    }


def baichuan_13b() -> Case:
    """q.k / sqrt(d) + slope (n - m): Press et al.'s slopes, six heads.

    Slopes of the power of two below, 2^(-8j/c), then the odd ones of twice that
    power.
    """
    heads, dim, power = 6, 4, 4
    slopes = [2.0 ** (-8.0 * j / power) for j in range(1, power + 1)]
    slopes += [2.0 ** (-4.0 * j / power) for j in (1, 3)]
    q, k = draw(heads, dim), draw(heads, dim)
    at = torch.arange(TOKENS).double()
    bias = torch.tensor(slopes).double()[:, None, None] * (at[None] - at[:, None])
    config = {
        "model_type": "baichuan",
        "hidden_size": heads * dim,
        "num_attention_heads": heads,
        "num_hidden_layers": 2,
        "model_max_length": 4096,
    }
    return layer(config, q, k, q @ k.transpose(1, 2) / math.sqrt(dim) + bias)


def palm_xpos() -> Case:
    """Sun et al.: pair i gains zeta_i^((m - n) / span), with one key head.

    zeta_i = (2i/d + 0.4) / 1.4 and theta_i = 10000^(-2i/d); pairs are halves.
    """
    heads, dim, span = 2, 8, 4.0
    q, k = draw(heads, dim), draw(1, dim)
    half = dim // 2
    i = torch.arange(half).double()
    theta = 10000.0 ** (-2.0 * i / dim)
    zeta = (2.0 * i / dim + 0.4) / 1.4
    at = torch.arange(TOKENS).double()
    offset = at[:, None] - at[None]
    turn = torch.polar(
        zeta ** (offset[..., None] / span), offset[..., None] * theta
    )  # [m, n, i]
    pairs_q = torch.complex(q[..., :half], q[..., half:])
    pairs_k = torch.complex(k[..., :half], k[..., half:])
    products = pairs_q[:, :, None] * pairs_k[:, None].conj() * turn
    config = {
        "model_type": "palm",
        "dim": 16,
        "heads": heads,
        "dim_head": dim,
        "depth": 2,
        "use_xpos": True,
        "xpos_scale_base": span,
    }
    return layer(config, q, k, products.real.sum(-1) / math.sqrt(dim))


def vaswani() -> Case:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos of the same."""
    width, positions = 16, [0, 1, 7, 511, 4096]
    angles = [
        [p / 10000.0 ** (2 * i / width) for i in range(width // 2)] for p in positions
    ]
    rows = [[f(angle) for angle in row for f in (math.sin, math.cos)] for row in angles]
    return {
        "name": "sinusoidal",
        "config": {
            "model_type": "transformer",
            "d_model": width,
            "num_heads": 2,
            "num_layers": 1,
        },
        "positions": positions,
        "rows": numbers(torch.tensor(rows, dtype=torch.float64)),
    }


def formulas_file() -> list[Case]:
    """formulas.json: Baichuan 13B, PaLM with xPos, the original Transformer."""
    torch.manual_seed(6)
    return [baichuan_13b(), palm_xpos(), vaswani()]
