"""Draw encodings: run as a script, or cell by cell (the # %% lines).

Everything is measured through attention itself. With q = 0 a single key's lse is
the bias of its offset; with q = k = e, a fixed vector, it is the score of RoPE.

    python draw_encoding.py [--out encodings.png]
"""

# %% What to draw
from __future__ import annotations

import argparse
import struct
import zlib
from pathlib import Path

import numpy as np

import locus_attn as locus

HEADS, HEAD_DIM, REACH = 8, 64, 256
SHADES = " .:-=+*#%@"


# %% Bias against offset, one row per head
def bias(encoding: locus.Encoding) -> np.ndarray:
    """B[h, m - n] for m - n = 0 .. REACH - 1: [heads, REACH]."""
    q = np.zeros((1, HEADS, REACH, HEAD_DIM), np.float32)
    one = np.zeros((1, HEADS, 1, HEAD_DIM), np.float32)
    offsets = np.arange(REACH)
    _, lse = locus.attention(
        q, one, one, encoding, q_positions=offsets, k_positions=[0], return_lse=True
    )
    return np.asarray(lse[0])


# %% Score against offset, for encodings that rotate
def score(encoding: locus.Encoding) -> np.ndarray:
    """(R_m e).(R_n e) / |e|^2 for m - n = 0 .. REACH - 1: [1, REACH]."""
    e = np.ones((1, 1, REACH, HEAD_DIM), np.float32)
    turned = locus.rotate(e, encoding)
    return np.asarray(turned[0, 0] @ turned[0, 0, 0] / HEAD_DIM)[None]


# %% Position against channel, for encodings of the input
def rows(encoding: locus.Encoding) -> np.ndarray:
    """E[pos]^T for pos = 0 .. REACH - 1: [channels, REACH]."""
    return np.asarray(encoding.embed(np.arange(REACH))).T


# %% Pictures: numbers in [0, 1], dark is small
def pictures() -> dict[str, np.ndarray]:
    table = np.linspace(1, -1, 32)[:, None] * np.linspace(0.2, 1, HEADS)
    drawn = {
        "ALiBi, bias by offset, one row per head": bias(locus.Alibi(HEADS)),
        "T5, bias by offset, one row per head": bias(locus.T5Bias(table)),
        "RoPE, score by offset": score(locus.Rope(HEAD_DIM, "halves")),
        "sinusoids, channel by position": rows(locus.Sinusoidal(32)),
    }

    def spread(x: np.ndarray) -> np.ndarray:
        return np.asarray((x - x.min()) / (x.max() - x.min()))

    return {title: spread(x) for title, x in drawn.items()}


# %% In the terminal
def show(picture: np.ndarray, columns: int = 64, lines: int = 8) -> str:
    picked = picture[:: max(len(picture) // lines, 1), :: REACH // columns]
    levels = np.minimum((picked * len(SHADES)).astype(int), len(SHADES) - 1)
    return "\n".join("".join(SHADES[i] for i in line) for line in levels)


# %% As a file
def png(picture: np.ndarray, height: int = 64) -> bytes:
    """A grey PNG; rows repeat until it is about `height` high."""
    grey = np.repeat(picture, max(height // len(picture), 1), axis=0)
    grey = np.repeat((255 * grey).astype(np.uint8), 2, axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    # Each line begins with its filter: none.
    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


# %% All of them
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw encodings.")
    parser.add_argument("--out", type=Path, help="a PNG with the pictures stacked")
    arguments = parser.parse_args()
    all_pictures = pictures()
    for title, picture in all_pictures.items():
        print(title)
        print(show(picture), end="\n\n")
    if arguments.out:
        parts = []
        for picture in all_pictures.values():
            tall = np.repeat(picture, max(64 // len(picture), 1), axis=0)
            parts += [tall, np.ones((8, REACH))]
        arguments.out.write_bytes(png(np.concatenate(parts[:-1])))
        print(f"wrote {arguments.out}")
