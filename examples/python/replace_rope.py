"""Replace RoPE in an existing model.

A LLaMA of Hugging Face rotates q and k by tables of float32 angles. Here its
attention hands unrotated q and k to Locus, which rotates while it packs them,
from angles that are exact at any position. The logits agree at the start of a
sequence. Far out, LLaMA's own drift: the same tokens at a shifted position should
give the same logits, since RoPE is relative.

    python replace_rope.py [--length 64] [--shift 1000000]
"""

from __future__ import annotations

import argparse
import types

import torch
import transformers
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaAttention

import locus_attn.torch as lt


class RopeAttention(nn.Module):
    """A LlamaAttention whose rotation and attention are one call."""

    def __init__(self, original: LlamaAttention) -> None:
        super().__init__()
        # The same parameters under the same names.
        self.q_proj, self.k_proj = original.q_proj, original.k_proj
        self.v_proj, self.o_proj = original.v_proj, original.o_proj
        self.head_dim: int = original.head_dim
        base = float(original.config.to_dict()["rope_parameters"]["rope_theta"])
        self.rope = lt.Rope(self.head_dim, layout="halves", base=base)

    def forward(
        self, hidden_states: Tensor, position_ids: Tensor, **unused: object
    ) -> tuple[Tensor, None]:
        def heads(x: Tensor) -> Tensor:
            batch, length, _ = x.shape
            return x.view(batch, length, -1, self.head_dim).transpose(1, 2)

        out = self.rope(
            heads(self.q_proj(hidden_states)),
            heads(self.k_proj(hidden_states)),
            heads(self.v_proj(hidden_states)),
            causal=True,
            q_positions=position_ids[0],
            k_positions=position_ids[0],
        )
        merged: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return merged, None


def make_model() -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    # Transformers leaves its constructors without types.
    return transformers.LlamaForCausalLM(config)  # type: ignore[no-untyped-call]


@torch.no_grad()
def compare(length: int, shift: int) -> types.SimpleNamespace:
    """Differences of logits: between the two models, and of each with the shift."""
    model = make_model()
    model.train(False)
    ids = torch.randint(0, 256, (1, length))
    near, far = torch.arange(length)[None], torch.arange(length)[None] + shift
    own = [model(ids, position_ids=p).logits for p in (near, far)]
    for layer in model.model.layers:
        assert isinstance(layer.self_attn, LlamaAttention)
        layer.self_attn = RopeAttention(layer.self_attn)
    fused = [model(ids, position_ids=p).logits for p in (near, far)]

    def apart(a: Tensor, b: Tensor) -> float:
        return float((a - b).abs().max())

    return types.SimpleNamespace(
        models=apart(own[0], fused[0]),
        own_shifted=apart(*own),
        fused_shifted=apart(*fused),
        largest=float(own[0].abs().max()),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Replace RoPE in a LLaMA.")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--shift", type=int, default=1_000_000)
    arguments = parser.parse_args()
    result = compare(arguments.length, arguments.shift)
    print(f"largest logit                         {result.largest:.3f}")
    print(f"the two models at position 0          {result.models:.1e}")
    print(f"LLaMA's own, shifted by {arguments.shift:<13} {result.own_shifted:.1e}")
    print(f"with Locus, shifted by {arguments.shift:<14} {result.fused_shifted:.1e}")
