"""Which block size to ask the engine for, so that it takes it as it is.

The engine raises a block size that does not fit a model; what it would raise it to must
be known beforehand, or the device cache would hold more than is meant.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_BLOCK_TOKENS = 32  # CPU attention wants multiples of it
CHUNKED_BLOCK_TOKENS = 128
_KEY_OR_VALUE_BYTES = 2  # bf16, as the convolution's state
_STATE_BYTES = 4  # the recurrent state is kept in float32


def text_config_of(config: Mapping[str, object]) -> Mapping[str, object]:
    """The part of a Hugging Face configuration that describes the text layers."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def block_tokens_for(config: Mapping[str, object]) -> int:
    """The smallest block size, in tokens, that suits a model's layers."""
    text_config = text_config_of(config)
    layer_types = text_config.get("layer_types")
    kinds = layer_types if isinstance(layer_types, list) else []
    if "linear_attention" in kinds:
        return state_block_tokens(text_config)
    if "chunked_attention" in kinds:
        return CHUNKED_BLOCK_TOKENS
    return DEFAULT_BLOCK_TOKENS


def state_block_tokens(text_config: Mapping[str, object]) -> int:
    """The smallest block of full attention that is as large as one recurrent state.

    Source: vLLM 0.32, platforms/interface.py (the pages of both kinds must be equal)
    and model_executor/layers/mamba/mamba_utils.py, ``gated_delta_net_state_shape``.
    """
    size = _Sizes(text_config)
    token_bytes = 2 * size["num_key_value_heads"] * size.head_dim * _KEY_OR_VALUE_BYTES
    key_width = size["linear_num_key_heads"] * size["linear_key_head_dim"]
    num_heads, head_dim = size["linear_num_value_heads"], size["linear_value_head_dim"]
    convolved = 2 * key_width + num_heads * head_dim
    convolution = convolved * (size["linear_conv_kernel_dim"] - 1) * _KEY_OR_VALUE_BYTES
    recurrent = num_heads * head_dim * size["linear_key_head_dim"] * _STATE_BYTES
    step_bytes = DEFAULT_BLOCK_TOKENS * token_bytes
    return DEFAULT_BLOCK_TOKENS * math.ceil((convolution + recurrent) / step_bytes)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Whole numbers of a configuration; 1 where it has none."""

    config: Mapping[str, object]

    def __getitem__(self, key: str) -> int:
        value = self.config.get(key)
        return value if isinstance(value, int) else 1

    @property
    def head_dim(self) -> int:
        per_head = self["hidden_size"] // self["num_attention_heads"]
        given = self.config.get("head_dim")
        return given if isinstance(given, int) else per_head
