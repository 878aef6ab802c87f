"""Train a small model with T5's bias.

The task: a row of random tokens, then the same row again. To continue it, a token
must look back by the length of the row, so the model has to learn an offset. One
attention layer and the buckets of T5Bias are enough; the fused backward pass
gives the table its gradient without ever forming a length by length matrix.

    python train_t5_bias.py [--steps 200] [--row 12]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import locus_attn.torch as lt

VOCABULARY, WIDTH, HEADS = 16, 32, 4


class Model(nn.Module):
    """Embedding, one attention layer with a T5 bias, and a readout."""

    def __init__(self, buckets: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.readout = nn.Linear(WIDTH, VOCABULARY)
        # One bucket per offset: half of the buckets are exact.
        self.position = lt.T5Bias(HEADS, buckets=buckets, max_distance=2 * buckets)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = self.position(q, k, v, causal=True)
        y: Tensor = self.readout(x + self.out(mixed.transpose(1, 2).flatten(2)))
        return y


def batch(row: int, size: int = 32) -> Tensor:
    first = torch.randint(0, VOCABULARY, (size, row))
    return torch.cat([first, first], dim=1)


def train(steps: int, row: int) -> tuple[list[float], Model]:
    """Loss of each step, on the second row only, in nats per token."""
    torch.manual_seed(0)
    model = Model(buckets=4 * row)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        tokens = batch(row)
        logits = model(tokens[:, :-1])[:, row - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, row:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a model with T5's bias.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--row", type=int, default=12)
    arguments = parser.parse_args()
    losses, model = train(arguments.steps, arguments.row)
    for step in range(0, arguments.steps, max(arguments.steps // 8, 1)):
        print(f"step {step:4d}  loss {losses[step]:.3f}")
    print(f"last       loss {losses[-1]:.3f}")
    table = model.position.relative_attention_bias.weight
    offset = int(table.max(dim=1).values.argmax())
    print(f"the strongest bias is at offset {offset}; the row continues at ", end="")
    print(arguments.row - 1)
