"""Short ways to write the engine's specs of ordinary attention layers."""

from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    SlidingWindowSpec,
)

from kvcellar.testing.oracle.layouts.recipe import LayerSpecs


@dataclass(frozen=True, slots=True)
class Heads:
    """KV heads of a layer, in bfloat16: ``4 * num * size`` bytes per token."""

    num: int
    size: int

    def fields(self, block_tokens: int) -> dict[str, Any]:
        """Arguments that every attention spec takes."""
        return {
            "block_size": block_tokens,
            "num_kv_heads": self.num,
            "head_size": self.size,
            "dtype": torch.bfloat16,
        }


SMALL = Heads(1, 2)
"""8 bytes per token: enough to tell any two prefixes apart."""


def full(heads: Heads, block_tokens: int = 16) -> Any:
    """A layer that attends to the whole prefix."""
    return FullAttentionSpec(**heads.fields(block_tokens))


def window(heads: Heads, window_tokens: int, block_tokens: int = 16) -> Any:
    """A layer that attends to the last ``window_tokens`` tokens, its own included."""
    return SlidingWindowSpec(**heads.fields(block_tokens), sliding_window=window_tokens)


def chunked(heads: Heads, chunk_tokens: int, block_tokens: int = 16) -> Any:
    """A layer that attends within chunks of ``chunk_tokens`` tokens."""
    return ChunkedLocalAttentionSpec(
        **heads.fields(block_tokens), attention_chunk_size=chunk_tokens
    )


def stack(pattern: str, **spec_by_letter: Any) -> LayerSpecs:
    """Layers in the order of a pattern; letters without a spec keep no cache.

    Args:
        pattern: one letter per layer of the model.
        spec_by_letter: what a layer of that letter keeps.
    """
    return {
        f"model.layers.{i}.attn": spec_by_letter[letter]
        for i, letter in enumerate(pattern)
        if letter in spec_by_letter
    }
