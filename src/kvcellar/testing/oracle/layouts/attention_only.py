"""Models of full, MLA, sliding-window and chunked-local layers.

Source: the models' published config.json files; blocks of 16 tokens are the engine's
default on GPUs, those of 64 are FlashMLA's.
"""

import torch
from vllm.v1.kv_cache_interface import MLAAttentionSpec

from kvcellar.testing.oracle.layouts.recipe import LayerSpecs, Recipe, Size
from kvcellar.testing.oracle.layouts.specs import (
    SMALL,
    Heads,
    chunked,
    full,
    stack,
    window,
)


def _llama_31_8b(size: Size) -> LayerSpecs:
    heads = size.pick(SMALL, Heads(8, 128))
    return stack("F" * size.pick(4, 32), F=full(heads))


def _deepseek_v3(size: Size) -> LayerSpecs:
    latent = MLAAttentionSpec(
        block_size=64,
        num_kv_heads=1,
        head_size=size.pick(4, 512 + 64),
        dtype=torch.bfloat16,
    )
    return stack("F" * size.pick(4, 61), F=latent)


def _gpt_oss_20b(size: Size) -> LayerSpecs:
    heads = size.pick(SMALL, Heads(8, 64))
    pattern = "WF" * size.pick(2, 12)
    return stack(pattern, W=window(heads, 128), F=full(heads))


def _gemma_3_27b(size: Size) -> LayerSpecs:
    """Each sixth layer is full; the windowed ones do not divide evenly."""
    heads = size.pick(SMALL, Heads(16, 128))
    pattern = ("WWWWWF" * 11)[: size.pick(13, 62)]
    return stack(pattern, W=window(heads, 1024), F=full(heads))


def _llama_4(size: Size) -> LayerSpecs:
    """Scout: each fourth layer has no rotary embedding and attends to everything."""
    heads = size.pick(SMALL, Heads(8, 128))
    pattern = "CCCF" * size.pick(2, 12)
    return stack(pattern, C=chunked(heads, 8192), F=full(heads))


RECIPES = (
    Recipe("gpt-oss-20b", _gpt_oss_20b, prompt_tokens=400),
    Recipe("gemma-3-27b", _gemma_3_27b, prompt_tokens=2500),
    Recipe("llama-4", _llama_4, prompt_tokens=2 * 8192 + 500),
    Recipe("deepseek-v3", _deepseek_v3, prompt_tokens=400),
    Recipe("llama-3.1-8b", _llama_31_8b, prompt_tokens=200),
)
