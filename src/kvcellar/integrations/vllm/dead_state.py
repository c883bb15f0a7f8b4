"""Which groups hold DeepSeek-V4's compressor states: recognised by facts, not guessed.

To the scheduler such a group is a sliding window like any other. What it is follows
only from the model's code, so a group counts when all that is known of vLLM 0.32's
compressors holds for it: the names, shapes and types of all its layers, the compressed
cache that each of them feeds, and the model's mark on its other caches. Anything else
keeps the window that the engine declares.

Nothing of vLLM is imported; attributes are read as in ``translate``.
Source: CompressorStateCache, models/deepseek_v4/compressor.py, vLLM 0.32.
"""

import logging
from collections.abc import Mapping
from typing import Any

from kvcellar.errors import IncompatibleError
from kvcellar.layout.dead_state import with_dead_state_rule
from kvcellar.layout.groups import CacheLayout

logger = logging.getLogger(__name__)

STATE_SUFFIX = ".compressor.state_cache"
MODEL_VERSION = "deepseek_v4"

# (window, block) in tokens of the two compressors there are, and their ratio.
RATIO_BY_WINDOW_AND_BLOCK = {(8, 4): 4, (128, 8): 128}

# What a state's spec must say; an attribute that is absent is not known to be right.
_STATE_FACTS = {
    "dtype": "torch.float32",
    "num_kv_heads": "1",
    "tokens_per_state": "1",
    "state_content_bytes": "None",
    "model_version": "None",
    # A drafter of several modules recomputes tokens below the resume point.
    "extra_retained_tokens": "0",
    "bounded_replay": "False",
    "prefix_cacheable": "True",
}


def with_proven_dead_states(
    layout: CacheLayout, ratios: Mapping[int, int]
) -> CacheLayout:
    """The layout under the dead-state rule, where the rule is proven; else as it was.

    Args:
        layout: as the engine declares it.
        ratios: from ``compressor_states``, where all ranks agree on them.
    """
    try:
        return with_dead_state_rule(layout, ratios)
    except IncompatibleError as cause:
        logger.info("kvcellar: the dead-state rule stays off: %s", cause)
        return layout


def compressor_states(kv_cache_config: Any) -> dict[int, int]:
    """Tokens per compressed entry by id of each group of compressors' states.

    Empty for every model but DeepSeek-V4, and for one that recomputes tokens below
    its resume points. Both the workers' configuration and the scheduler's, which shows
    one spec for layers that differ, lead to the same answer.
    """
    groups = list(kv_cache_config.kv_cache_groups)
    specs = [spec for group in groups for spec in _specs_by_layer(group).values()]
    is_known = any(getattr(s, "model_version", None) == MODEL_VERSION for s in specs)
    if not is_known or any(getattr(s, "prefix_replay_tokens", 0) for s in specs):
        return {}
    ratio_by_cache = _ratio_by_compressed_cache(groups)
    ratios = ((i, _group_ratio(g, ratio_by_cache)) for i, g in enumerate(groups))
    return {group_id: ratio for group_id, ratio in ratios if ratio is not None}


def _group_ratio(group: Any, ratio_by_cache: Mapping[str, int | None]) -> int | None:
    """Ratio of the compressors whose states the group holds; None for other groups."""
    is_plain = (
        getattr(group, "enable_kv_transfer", True)
        and not getattr(group, "host_resident", False)
        and not getattr(group, "is_eagle_group", False)
    )
    if not is_plain:
        return None
    ratios = {
        _layer_ratio(name, spec, ratio_by_cache)
        for name, spec in _specs_by_layer(group).items()
    }
    return ratios.pop() if len(ratios) == 1 else None


def _layer_ratio(
    name: str, spec: Any, ratio_by_cache: Mapping[str, int | None]
) -> int | None:
    """Ratio of the compressor that keeps this layer; None if anything is strange."""
    if type(spec).__name__ != "SlidingWindowMLASpec" or not name.endswith(STATE_SUFFIX):
        return None
    facts = {key: str(getattr(spec, key, "absent")) for key in _STATE_FACTS}
    ratio = RATIO_BY_WINDOW_AND_BLOCK.get((spec.sliding_window, spec.block_size))
    if facts != _STATE_FACTS or ratio is None:
        return None
    # A row is values and scores, of one series or, with overlap, of two.
    if spec.head_size % (2 * spec.sliding_window // ratio):
        return None
    owner = name.removesuffix(STATE_SUFFIX)
    fed = [c for c in (owner, f"{owner}.k_cache") if c in ratio_by_cache]
    is_fed = len(fed) == 1 and ratio_by_cache[fed[0]] in (ratio, None)
    return ratio if is_fed else None


def _ratio_by_compressed_cache(groups: list[Any]) -> dict[str, int | None]:
    """Tokens per entry of every MLA cache; None where only its group's spec shows."""
    return {
        name: getattr(spec, "tokens_per_state", 1) if _shows_each(group) else None
        for group in groups
        for name, spec in _specs_by_layer(group).items()
        if type(spec).__name__ == "MLAAttentionSpec"
    }


def _shows_each(group: Any) -> bool:
    """Whether the group's spec holds one per layer, not one in the place of all."""
    return hasattr(group.kv_cache_spec, "kv_cache_specs")


def _specs_by_layer(group: Any) -> dict[str, Any]:
    spec = group.kv_cache_spec
    return {
        name: spec.kv_cache_specs[name] if _shows_each(group) else spec
        for name in group.layer_names
    }
