"""Decode token by token with a cache of keys and values.

A prompt fills a `locus.KvCache` at once, then each new token is appended and
attends to all before it. Keys are rotated once, when they are appended. The rows
equal those of one call over the whole sequence, whatever the encoding.

    python decode_with_cache.py [--prompt 100] [--tokens 50]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import locus_attn as locus

HEADS, KV_HEADS, HEAD_DIM = 8, 2, 64


def encodings() -> dict[str, locus.Encoding]:
    rng = np.random.default_rng(1)
    table = rng.standard_normal((32, HEADS)).astype(np.float32)
    return {
        "RoPE": locus.Rope(HEAD_DIM, "halves", base=500_000.0),
        "ALiBi": locus.Alibi(HEADS),
        "T5": locus.T5Bias(table),
    }


def decode(encoding: locus.Encoding, prompt: int, tokens: int) -> tuple[float, float]:
    """(largest difference from one whole call, microseconds a decoded token)."""
    rng = np.random.default_rng(0)
    length = prompt + tokens

    def normal(heads: int) -> np.ndarray:
        return rng.standard_normal((1, heads, length, HEAD_DIM)).astype(np.float32)

    q, k, v = normal(HEADS), normal(KV_HEADS), normal(KV_HEADS)
    cache = locus.KvCache(KV_HEADS, HEAD_DIM, q_heads=HEADS, capacity=length)
    cache.append(k[:, :, :prompt], v[:, :, :prompt], encoding)
    rows = [cache.decode(q[:, :, :prompt], encoding)]
    start = time.perf_counter()
    for t in range(prompt, length):
        cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1], encoding)
        rows.append(cache.decode(q[:, :, t : t + 1], encoding))
    seconds = time.perf_counter() - start
    whole = locus.attention(q, k, v, encoding, causal=True)
    error = float(np.abs(np.concatenate(rows, axis=2) - whole).max())
    return error, 1e6 * seconds / tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Decode with a cache.")
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=50)
    arguments = parser.parse_args()
    for name, encoding in encodings().items():
        error, micros = decode(encoding, arguments.prompt, arguments.tokens)
        print(f"{name:6} {micros:7.0f} us a token, differs by {error:.1e}")
