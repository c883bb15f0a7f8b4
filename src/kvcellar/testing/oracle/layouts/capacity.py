"""How many device blocks a layout gets, by the engine's own accounting."""

import math
from typing import Any

from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config
from vllm.v1.kv_cache_interface import KVCacheConfig

from kvcellar.integrations.vllm.compat import cache_planning
from kvcellar.testing.oracle.layouts.recipe import LayerSpecs, Recipe

ANSWER_TOKENS = 64
"""Decoded tokens that are counted with a prompt."""

NULL_BLOCKS = 1
"""Blocks that the engine never hands out."""


def device_blocks(
    vllm_config: Any, recipe: Recipe, layers: LayerSpecs, device_prompts: float
) -> int:
    """Blocks for ``device_prompts`` long prompts, and for one of the longest legal.

    Args:
        device_prompts: long prompts, with their answers, that fit at once.
    """
    groups = cache_planning().get_kv_cache_groups(vllm_config, dict(layers))
    longest = vllm_config.model_config.max_model_len
    typical = min(recipe.prompt_tokens + ANSWER_TOKENS, longest)
    wanted = math.ceil(device_prompts * _blocks(vllm_config, groups, typical))
    return max(wanted, _blocks(vllm_config, groups, longest)) + NULL_BLOCKS


def _blocks(vllm_config: Any, groups: list[Any], num_tokens: int) -> int:
    """Blocks that one request of ``num_tokens`` tokens may hold at its peak.

    The engine answers for the longest request it allows, so that is changed meanwhile.
    """
    model = vllm_config.model_config
    longest: int = model.max_model_len
    one_block = KVCacheConfig(num_blocks=1, kv_cache_tensors=[], kv_cache_groups=groups)
    model.max_model_len = num_tokens
    try:
        share = get_max_concurrency_for_kv_cache_config(vllm_config, one_block)
    finally:
        model.max_model_len = longest
    num_blocks: int = round(1 / share)
    return num_blocks
