"""Models that mix recurrent state with full attention.

The engine makes blocks long enough for an attention page to hold one state, and pads
the states to that page; in align mode a state is kept where a block ends.
Source: Platform._align_hybrid_block_size, vLLM 0.32; the models' config.json files.
"""

import math
from typing import Any

import torch
from vllm.v1.kv_cache_interface import MambaSpec

from kvcellar.testing.oracle.layouts.recipe import LayerSpecs, Recipe, Size
from kvcellar.testing.oracle.layouts.specs import SMALL, Heads, full, stack

KERNEL_BLOCK_TOKENS = 16
"""Blocks are multiples of this: FlashAttention's smallest block."""

States = tuple[tuple[tuple[int, ...], torch.dtype], ...]
"""Shape and type of each part of a layer's state."""

# 32 value and 16 key heads of 128; a convolution of 4 over keys, queries and values.
QWEN3_NEXT_STATES: States = (
    ((3, 2 * 16 * 128 + 32 * 128), torch.bfloat16),
    ((32, 128, 128), torch.bfloat16),
)
QWEN3_NEXT_STATES_SMALL: States = (
    ((3, 64), torch.bfloat16),
    ((30, 8, 8), torch.bfloat16),
)
# 128 heads of 64 with states of 128; a convolution of 4 over heads and 8 groups.
NEMOTRON_H_STATES: States = (
    ((3, 128 * 64 + 2 * 8 * 128), torch.bfloat16),
    ((128, 64, 128), torch.float32),
)
NEMOTRON_H_STATES_SMALL: States = (
    ((3, 160), torch.bfloat16),
    ((112, 4, 4), torch.float32),
)
# M keeps a state, * attends, - neither.
NEMOTRON_H_PATTERN = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
NEMOTRON_H_PATTERN_SMALL = "M-M-M-M*-M-M-M-M*-M-M-M-M-"

QWEN3_NEXT_HEADS = Heads(2, 256)
NEMOTRON_H_HEADS = Heads(8, 128)


def state_bytes(states: States) -> int:
    """Bytes of one layer's state, without page padding."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in states)


def aligned_block_tokens(states: States, heads: Heads) -> int:
    """The shortest block whose attention page holds a state."""
    token_bytes: int = full(heads, 1).page_size_bytes
    num_kernel_blocks = -(-state_bytes(states) // (KERNEL_BLOCK_TOKENS * token_bytes))
    return KERNEL_BLOCK_TOKENS * num_kernel_blocks


def _state_layer(states: States, block_tokens: int, page_bytes: int) -> Any:
    shapes, dtypes = zip(*states, strict=True)
    return MambaSpec(
        block_size=block_tokens,
        shapes=shapes,
        dtypes=dtypes,
        page_size_padded=page_bytes,
        mamba_cache_mode="align",
    )


def _qwen3_next(size: Size) -> LayerSpecs:
    """The 80B model: three recurrent layers, then a full one."""
    block = aligned_block_tokens(QWEN3_NEXT_STATES, QWEN3_NEXT_HEADS)
    states = size.pick(QWEN3_NEXT_STATES_SMALL, QWEN3_NEXT_STATES)
    attention = full(size.pick(SMALL, QWEN3_NEXT_HEADS), block)
    state = _state_layer(states, block, attention.page_size_bytes)
    return stack("SSSF" * size.pick(2, 12), S=state, F=attention)


def _nemotron_h(size: Size) -> LayerSpecs:
    """The 8B model: 24 recurrent layers and 4 full ones."""
    block = aligned_block_tokens(NEMOTRON_H_STATES, NEMOTRON_H_HEADS)
    states = size.pick(NEMOTRON_H_STATES_SMALL, NEMOTRON_H_STATES)
    attention = full(size.pick(SMALL, NEMOTRON_H_HEADS), block)
    state = _state_layer(states, block, attention.page_size_bytes)
    pattern = size.pick(NEMOTRON_H_PATTERN_SMALL, NEMOTRON_H_PATTERN)
    return stack(pattern, **{"M": state, "*": attention})


RECIPES = (
    Recipe("qwen3-next", _qwen3_next, prompt_tokens=4 * 544 + 124),
    Recipe("nemotron-h", _nemotron_h, prompt_tokens=4 * 1040 + 140),
)
