"""DeepSeek-V4.1: few layers keep a compressed cache, the windows are replayed.

After a prefix hit the engine recomputes the last window, so the windows, and the rings
of tokens still to be compressed, are scratch: never found again, never moved.
Source of shapes: models/deepseek_v41 of vLLM 0.32, on GPUs with blocks of 64 tokens
(compute capability 9). Source of counts: config.json of DeepSeek-V4.1-Flash.
"""

import torch
from vllm.v1.kv_cache_interface import CircularBufferSpec

from kvcellar.testing.oracle.layouts.deepseek_v4 import (
    FP8,
    FP8_SMALL,
    Widths,
    compressed_cache,
    indexer_cache,
    window_cache,
)
from kvcellar.testing.oracle.layouts.recipe import (
    BLOCK_OUTER,
    LayerSpecs,
    Recipe,
    Size,
)

NUM_LAYERS = 40
RATIO_BY_KV_SOURCE = {2: 2, 8: 2, 14: 2, 20: 1}
KV_BLOCK_TOKENS = 64
WINDOW_BLOCK_TOKENS = 32
RING_TOKENS = 8


def _layers(size: Size) -> LayerSpecs:
    """All layers even when small: their number decides how the windows are cut."""
    widths = size.pick(FP8_SMALL, FP8)
    layers: LayerSpecs = {}
    for i in range(NUM_LAYERS):
        layers |= _one_layer(
            f"model.layers.{i}.attn", RATIO_BY_KV_SOURCE.get(i), widths
        )
    return layers


def _one_layer(name: str, ratio: int | None, widths: Widths) -> LayerSpecs:
    layers: LayerSpecs = {}
    if ratio is not None:
        layers[name] = compressed_cache(widths, ratio, KV_BLOCK_TOKENS)
        layers[f"{name}.indexer.k_cache"] = indexer_cache(
            widths, ratio, KV_BLOCK_TOKENS
        )
    layers[f"{name}.swa_cache"] = window_cache(
        widths, WINDOW_BLOCK_TOKENS, bounded_replay=True
    )
    if ratio == 2:
        layers[f"{name}.compressor.state_cache"] = _ring(2 * widths.state_size)
    return layers


def _ring(size: int) -> CircularBufferSpec:
    """Values and scores of the open pair of tokens, one block per request."""
    return CircularBufferSpec(
        block_size=RING_TOKENS,
        num_kv_heads=1,
        head_size=size,
        head_size_v=0,
        dtype=torch.float32,
    )


RECIPES = (Recipe("deepseek-v4.1", _layers, 500, BLOCK_OUTER),)
