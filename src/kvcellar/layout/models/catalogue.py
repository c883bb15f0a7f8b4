"""Published models by name: the numbers of their config.json that decide the cache.

Source: the models' own config.json files. DeepSeek-V4-Pro is left out, since its
compress_ratios are not among the facts at hand; pass its config.json.
"""

from collections.abc import Mapping
from typing import Any


def _decoder(
    architecture: str,
    *,
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    max_tokens: int,
    **more: Any,
) -> dict[str, Any]:
    """A configuration of a decoder with ordinary heads.

    Args:
        more: what the architecture needs besides.
    """
    return {
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": max_tokens,
        "dtype": "bfloat16",
        **more,
    }


def _llama(layers: int, heads: int) -> dict[str, Any]:
    return _decoder(
        "LlamaForCausalLM",
        layers=layers,
        heads=heads,
        kv_heads=8,
        head_size=128,
        max_tokens=131072,
    )


def _gpt_oss(layers: int) -> dict[str, Any]:
    return _decoder(
        "GptOssForCausalLM",
        layers=layers,
        heads=64,
        kv_heads=8,
        head_size=64,
        max_tokens=131072,
        sliding_window=128,
    )


def _gemma3(
    layers: int, heads: int, kv_heads: int, head_size: int, **more: Any
) -> dict[str, Any]:
    return _decoder(
        "Gemma3ForConditionalGeneration",
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        **{"max_tokens": 131072, "sliding_window": 1024, **more},
    )


def _llama4(max_tokens: int) -> dict[str, Any]:
    return _decoder(
        "Llama4ForConditionalGeneration",
        layers=48,
        heads=40,
        kv_heads=8,
        head_size=128,
        max_tokens=max_tokens,
        attention_chunk_size=8192,
    )


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "max_position_embeddings": 163840,
    },
    "deepseek-v4-flash": {
        "architectures": ["DeepseekV4ForCausalLM"],
        "num_hidden_layers": 43,
        "num_attention_heads": 64,
        "head_dim": 512,
        "index_head_dim": 128,
        "sliding_window": 128,
        "compress_ratios": [0, 0] + [4, 128] * 20 + [4],
        "max_position_embeddings": 1048576,
    },
    "gemma-3-12b": _gemma3(layers=48, heads=16, kv_heads=8, head_size=256),
    "gemma-3-270m": _gemma3(
        layers=18,
        heads=4,
        kv_heads=1,
        head_size=256,
        architectures=["Gemma3ForCausalLM"],
        max_tokens=32768,
        sliding_window=512,
    ),
    "gemma-3-27b": _gemma3(layers=62, heads=32, kv_heads=16, head_size=128),
    "gpt-oss-120b": _gpt_oss(layers=36),
    "gpt-oss-20b": _gpt_oss(layers=24),
    "llama-3.1-70b": _llama(layers=80, heads=64),
    "llama-3.1-8b": _llama(layers=32, heads=32),
    "llama-4-maverick": _llama4(max_tokens=1048576),
    "llama-4-scout": _llama4(max_tokens=10485760),
    "mistral-small": _decoder(
        "Mistral3ForConditionalGeneration",
        layers=40,
        heads=32,
        kv_heads=8,
        head_size=128,
        max_tokens=131072,
    ),
    "nemotron-h": _decoder(
        "NemotronHForCausalLM",
        layers=52,
        heads=32,
        kv_heads=8,
        head_size=128,
        max_tokens=8192,
        hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        mamba_num_heads=128,
        mamba_head_dim=64,
        ssm_state_size=128,
        n_groups=8,
        conv_kernel=4,
    ),
    "qwen3-32b": _decoder(
        "Qwen3ForCausalLM",
        layers=64,
        heads=64,
        kv_heads=8,
        head_size=128,
        max_tokens=40960,
    ),
    "qwen3-next": _decoder(
        "Qwen3NextForCausalLM",
        layers=48,
        heads=16,
        kv_heads=2,
        head_size=256,
        max_tokens=262144,
        full_attention_interval=4,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
    ),
}
"""Configurations by name."""

ALIASES: Mapping[str, str] = {
    "deepseek-r1": "deepseek-v3",
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-4": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "mistral-small-3.1-24b": "mistral-small",
    "mistral-small-3.2-24b": "mistral-small",
    "nemotron-h-8b": "nemotron-h",
    "qwen3-next-80b": "qwen3-next",
    "qwen3-next-80b-a3b": "qwen3-next",
}
"""Other names of the same layouts."""

MODEL_NAMES: tuple[str, ...] = tuple(CONFIGS)
"""Every name in the catalogue, without aliases."""

_SUFFIXES = ("-instruct", "-it", "-base", "-thinking", "-pt")


def catalogue_name(name: str) -> str | None:
    """The catalogue's name of a model, or None if it has none.

    Args:
        name: the catalogue's, an alias, or a checkpoint's such as
            ``google/gemma-3-27b-it``.
    """
    short = name.lower().rsplit("/", 1)[-1]
    for suffix in ("", *_SUFFIXES):
        if short.endswith(suffix):
            candidate = short.removesuffix(suffix)
            known = ALIASES.get(candidate, candidate)
            if known in CONFIGS:
                return known
    return None
