"""What a call costs that has nothing to do: attention on [1, 1, 1, 8].

NumPy's peer is the formula in three lines; torch's is its fused function.
"""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F

import locus_attn as locus
import locus_attn.torch as lt

from . import formulas
from .case import FORWARD, THREADS, Contest, Row, Side, inference, normal

DIM = 8


def _numpy_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = DIM**-0.5 * q @ k.swapaxes(-1, -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def _contest(framework: str) -> Contest:
    q, k, v = (normal(seed, 1, 1, 1, DIM) for seed in range(3))
    if framework == "numpy":
        a, b, c = (x.numpy() for x in (q, k, v))
        peer = Side(lambda: _numpy_attention(a, b, c), "softmax(q k^T) v in NumPy")
        mine = Side(
            lambda: locus.attention(a, b, c, threads=THREADS), "locus.attention"
        )
    else:
        peer = Side(
            inference(lambda: F.scaled_dot_product_attention(q, k, v)),
            "scaled_dot_product_attention",
        )
        mine = Side(inference(lambda: lt.attention(q, k, v)), "locus.torch.attention")
    return Contest(
        peer=peer,
        locus=mine,
        truth=lambda: [
            formulas.attend(q.double(), k.double(), v.double(), scale=DIM**-0.5)
        ],
        work=4.0 * DIM,
        shapes={"q, k, v": [*q.shape]},
    )


def rows(longest: int) -> list[Row]:
    return [
        Row(
            name=f"overhead/{framework}/N:1/D:{DIM}/H:1",
            group="Call overhead",
            label=f"{framework}, [1, 1, 1, {DIM}]",
            direction=FORWARD,
            length=1,
            build=lambda length, f=framework: _contest(f),
            required_seconds=seconds,
            shown=False,
        )
        for framework, seconds in (("numpy", 10e-6), ("torch", 25e-6))
    ]
