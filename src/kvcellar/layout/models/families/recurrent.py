"""Layers that keep one recurrent state, mixed with full attention.

The engine makes blocks long enough for an attention page to hold one state and pads the
states to that page. With prefix caching a state is kept where a block ends.

Source: Platform._align_hybrid_block_size, platforms/interface.py, and
MambaStateShapeCalculator, model_executor/layers/mamba/mamba_utils.py, vLLM 0.32.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families.parts import (
    Heads,
    ModelLayers,
    attention_block,
    heads_of,
    stack,
)
from kvcellar.layout.models.layer import AttentionCache, CacheForm, StateCache
from kvcellar.layout.models.options import ServingOptions, share_of

_NEMOTRON_H_DEFAULTS = {"head_dim": 128}
_FULL, _STATE = "full", "state"
_KIND_BY_NAME = {
    "full_attention": _FULL,
    "attention": _FULL,
    "*": _FULL,
    "linear_attention": _STATE,
    "mamba": _STATE,
    "M": _STATE,
    "mlp": None,
    "moe": None,
    "-": None,
    "E": None,
}


def gated_delta_net(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """Qwen3-Next and its successors: three gated delta nets to one full layer."""
    num_layers = config.num_layers
    names = config.sequence("layer_types", num_layers)
    if names is None:
        interval = config.integer("full_attention_interval", default=4)
        names = [
            "linear_attention" if (i + 1) % interval else "full_attention"
            for i in range(num_layers)
        ]
    state = _delta_net_state(config, options)
    return _mixed(config, options, names, state)


def nemotron_h(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """Mamba-2 and full layers, with feed-forward layers of their own between them."""
    config = config.with_defaults(_NEMOTRON_H_DEFAULTS)
    if config.window() is not None:
        raise IncompatibleError(
            f"{config.name}: recurrent layers beside a sliding window of "
            f"{config.window()} tokens are not known to kvcellar"
        )
    names = (
        config.get("layers_block_type")
        or config.get("layer_types")
        or config.get("hybrid_override_pattern")
    )
    if not names:
        raise ConfigError(
            f"{config.name}: the configuration has no hybrid_override_pattern, which "
            "says what each layer is"
        )
    state = _mamba2_state(config, options)
    return _mixed(config, options, names, state)


def _mixed(
    config: ModelConfig,
    options: ServingOptions,
    names: Sequence[Any],
    state: StateCache,
) -> ModelLayers:
    """Lay out both kinds with one page.

    Args:
        names: what each layer is, by a name of ``_KIND_BY_NAME``.
        state: with any block.
    """
    unknown = sorted({str(name) for name in names} - _KIND_BY_NAME.keys())
    if unknown:
        raise IncompatibleError(
            f"{config.name}: layers of type {', '.join(unknown)} are not known to "
            f"kvcellar here; it knows {', '.join(_KIND_BY_NAME)}"
        )
    full = _attention_for(heads_of(config, options), options, state.payload_bytes)
    has_padding = full.page_bytes != state.payload_bytes
    padded = dataclasses.replace(
        state,
        block_tokens=full.block_tokens,
        page_padded_bytes=full.page_bytes if has_padding else None,
    )
    cache_by_kind = {_FULL: full, _STATE: padded, None: None}
    return stack(config, options, [cache_by_kind[_KIND_BY_NAME[n]] for n in names])


def _attention_for(
    heads: Heads, options: ServingOptions, state_bytes: int
) -> AttentionCache:
    """Full attention in the shortest blocks whose page holds a state."""
    unit = attention_block(options)
    unit_bytes = heads.cache(unit, CacheForm.FULL).page_bytes
    num_units = max(1, -(-state_bytes // unit_bytes))
    return heads.cache(unit * num_units, CacheForm.FULL)


def _delta_net_state(config: ModelConfig, options: ServingOptions) -> StateCache:
    num_ranks = options.tensor_parallel
    num_keys = config.integer("linear_num_key_heads")
    num_values = config.integer("linear_num_value_heads")
    key_size = config.integer("linear_key_head_dim")
    value_size = config.integer("linear_value_head_dim")
    kernel = config.integer("linear_conv_kernel_dim")
    width = 2 * num_keys * key_size + num_values * value_size
    shapes = (
        (kernel - 1, share_of(width, num_ranks, "convolution channels")),
        (share_of(num_values, num_ranks, "value heads"), value_size, key_size),
    )
    dtypes = _state_dtypes(config, options, config.get("mamba_ssm_dtype"))
    return StateCache(1, shapes, dtypes)


def _mamba2_state(config: ModelConfig, options: ServingOptions) -> StateCache:
    num_ranks = options.tensor_parallel
    num_heads = config.integer("mamba_num_heads")
    head_size = config.integer("mamba_head_dim")
    state_size = config.integer("ssm_state_size", "mamba_state_dim")
    kernel = config.integer("conv_kernel", "mamba_d_conv")
    num_groups = config.integer("n_groups", "mamba_n_groups")
    if num_groups % num_ranks:
        # The engine repeats groups so that each rank has what its heads need.
        num_groups = num_ranks
    width = num_heads * head_size + 2 * num_groups * state_size
    shapes = (
        (kernel - 1, share_of(width, num_ranks, "convolution channels")),
        (share_of(num_heads, num_ranks, "state heads"), head_size, state_size),
    )
    own = config.get("mamba_ssm_cache_dtype") or "float32"
    dtypes = _state_dtypes(config, options, own)
    # Mamba-2 can set a state aside in the middle of a prefill.
    return StateCache(1, shapes, dtypes, num_checkpoint_blocks=1)


def _state_dtypes(
    config: ModelConfig, options: ServingOptions, own: Any
) -> tuple[str, str]:
    """Types of the convolution's and the recurrent part.

    Args:
        own: of the recurrent part, as the model wants it; None leaves it open.
    """
    dtype = config.dtype
    chosen = own if options.state_dtype == "auto" else options.state_dtype
    return dtype, str(chosen) if chosen not in (None, "auto") else dtype
