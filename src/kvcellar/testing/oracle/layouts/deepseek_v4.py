"""DeepSeek-V4: windows, two compressed caches, an indexer, and compressors' states.

Source of shapes: models/deepseek_v4 and v1/attention/backends/mla/sparse_swa.py of
vLLM 0.32. Source of counts: config.json of DeepSeek-V4-Flash (43 layers, the first two
with a window only, then compression by 4 and by 128 in turn).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

from kvcellar.integrations.vllm.compat import as_draft_layer
from kvcellar.testing.oracle.layouts.recipe import (
    BLOCK_OUTER,
    LayerSpecs,
    Recipe,
    Size,
)

WINDOW_TOKENS = 128
NUM_LAYERS = 43
# The fewest layers of the same pattern that the engine cuts into the same groups.
NUM_LAYERS_SMALL = 9


@dataclass(frozen=True, slots=True)
class Widths:
    """Sizes of what the layers keep.

    Attributes:
        kv_dtype: of windows and compressed caches.
        kv_size: entries of that type per token or compressed token.
        kv_bytes: the same in bytes, where the record is packed.
        indexer_bytes: of one indexer key.
        state_size: of a compressor's value and of its score, in float32.
        indexer_state_size: the same of the indexer's compressor.
        alignment_bytes: pages are padded to multiples of this.
    """

    kv_dtype: torch.dtype
    kv_size: int
    kv_bytes: int | None
    indexer_bytes: int
    state_size: int
    indexer_state_size: int
    alignment_bytes: int

    @property
    def cache_dtype(self) -> str:
        """The engine's name of the record's format."""
        return "bfloat16" if self.kv_bytes is None else "fp8_ds_mla"


FP8 = Widths(torch.uint8, 512, 584, 132, 512, 128, 576)
BF16 = Widths(torch.bfloat16, 512, None, 132, 512, 128, 512)
# Small ones keep which pages are equal, which is larger, and which are padded. All
# pages stay multiples of 4 bytes, since the states are float32.
FP8_SMALL = Widths(torch.uint8, 512, 20, 4, 8, 4, 36)
BF16_SMALL = Widths(torch.bfloat16, 8, None, 5, 8, 4, 128)


def window_cache(widths: Widths, block_tokens: int, **changes: Any) -> Any:
    """A layer's uncompressed cache of its window."""
    return SlidingWindowMLASpec(
        block_size=block_tokens,
        num_kv_heads=1,
        head_size=widths.kv_size,
        dtype=widths.kv_dtype,
        sliding_window=WINDOW_TOKENS,
        state_content_bytes=widths.kv_bytes,
        model_version="deepseek_v4",
        cache_dtype_str=widths.cache_dtype,
        alignment=widths.alignment_bytes,
        **changes,
    )


def compressed_cache(widths: Widths, ratio: int, block_tokens: int) -> Any:
    """A layer's compressed cache: one record for ``ratio`` tokens."""
    return MLAAttentionSpec(
        block_size=block_tokens,
        num_kv_heads=1,
        head_size=widths.kv_size,
        dtype=widths.kv_dtype,
        tokens_per_state=ratio,
        state_content_bytes=widths.kv_bytes,
        model_version="deepseek_v4",
        cache_dtype_str=widths.cache_dtype,
        alignment=widths.alignment_bytes,
    )


def indexer_cache(widths: Widths, ratio: int, block_tokens: int) -> Any:
    """An indexer's keys: one for ``ratio`` tokens."""
    return MLAAttentionSpec(
        block_size=block_tokens,
        num_kv_heads=1,
        head_size=widths.indexer_bytes,
        dtype=torch.uint8,
        tokens_per_state=ratio,
        alignment=widths.alignment_bytes,
    )


def _compressor_state(widths: Widths, ratio: int, state_size: int) -> Any:
    """Values and scores of tokens still to be compressed; ratio 4 overlaps by one."""
    overlap = 2 if ratio == 4 else 1
    return SlidingWindowMLASpec(
        block_size=4 if ratio == 4 else 8,
        num_kv_heads=1,
        head_size=2 * overlap * state_size,
        dtype=torch.float32,
        sliding_window=overlap * ratio,
        alignment=widths.alignment_bytes,
    )


def _layers(
    small: Widths, real: Widths, num_draft_layers: int, size: Size
) -> LayerSpecs:
    """Specs in the order in which the model registers its layers.

    The order decides the group ids, and the last layer marks the drafter's group.
    """
    widths = size.pick(small, real)
    num_layers = size.pick(NUM_LAYERS_SMALL, NUM_LAYERS)
    layers: LayerSpecs = {}
    for i in range(num_layers + num_draft_layers):
        is_window_only = i < 2 or i >= num_layers
        ratio = 1 if is_window_only else (128 if i % 2 else 4)
        layer = _one_layer(f"model.layers.{i}.attn", ratio, widths)
        if i >= num_layers:
            layer = {name: as_draft_layer(spec) for name, spec in layer.items()}
        layers |= layer
    return layers


def _one_layer(name: str, ratio: int, widths: Widths) -> LayerSpecs:
    layers: LayerSpecs = {}
    if ratio == 4:
        state = _compressor_state(widths, 4, widths.indexer_state_size)
        layers[f"{name}.indexer.k_cache"] = indexer_cache(widths, 4, 256)
        layers[f"{name}.indexer.compressor.state_cache"] = state
    layers[f"{name}.swa_cache"] = window_cache(widths, 64)
    if ratio > 1:
        state = _compressor_state(widths, ratio, widths.state_size)
        layers[name] = compressed_cache(widths, ratio, 256)
        layers[f"{name}.compressor.state_cache"] = state
    return layers


_FLASH = partial(_layers, FP8_SMALL, FP8, 0)

RECIPES = (
    Recipe("deepseek-v4-flash", _FLASH, 1300, BLOCK_OUTER),
    Recipe(
        "deepseek-v4-flash-bf16",
        partial(_layers, BF16_SMALL, BF16, 0),
        1300,
        BLOCK_OUTER,
    ),
    Recipe(
        "deepseek-v4-flash-mtp",
        partial(_layers, FP8_SMALL, FP8, 1),
        1300,
        BLOCK_OUTER,
        num_draft_tokens=1,
    ),
)
