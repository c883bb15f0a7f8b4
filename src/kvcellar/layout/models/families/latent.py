"""Multi-head latent attention: one vector per token and layer, the same on all ranks.

Source: model_executor/layers/attention/mla_attention.py and
model_executor/models/deepseek_v2.py, vLLM 0.32.
"""

from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families.parts import (
    ModelLayers,
    attention_block,
    cache_dtype_of,
    entry_dtype,
)
from kvcellar.layout.models.layer import AttentionCache, CacheForm, Layer
from kvcellar.layout.models.options import ServingOptions, share_of

FLASHMLA_BLOCK_TOKENS = 64
"""Block of FlashMLA, which serves sparse and 8-bit caches, and of the indexer."""

PACKED_RECORD_BYTES = 656
"""One token in ``fp8_ds_mla``: 512 bytes, their scales, and a bfloat16 rotary part."""

INDEXER_SCALE_BYTES, INDEXER_SCALED_ENTRIES = 4, 128


def latent(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """DeepSeek-V2, V3 and their like; with ``index_topk`` sparse, as V3.2."""
    share_of(
        config.integer("num_attention_heads"),
        options.tensor_parallel,
        "attention heads",
    )
    is_sparse = bool(config.get("index_topk"))
    cache_dtype, cache = _cache(config, options, is_sparse=is_sparse)
    layers: list[Layer] = []
    for index in range(config.num_layers):
        layers.append(Layer(index, "attn", cache))
        if is_sparse:
            indexer = indexer_cache(config, cache.block_tokens)
            layers.append(Layer(index, "indexer.k_cache", indexer))
    return ModelLayers(
        layers=tuple(layers),
        num_layers=config.num_layers,
        max_tokens=config.max_tokens,
        cache_dtype=cache_dtype,
        are_ranks_identical=True,
    )


def indexer_cache(
    config: ModelConfig,
    block_tokens: int,
    *,
    tokens_per_state: int = 1,
    alignment_bytes: int | None = None,
) -> AttentionCache:
    """An indexer's keys: a byte per entry, and a scale per 128 of them."""
    size = config.integer("index_head_dim")
    scales = INDEXER_SCALE_BYTES * (size // INDEXER_SCALED_ENTRIES)
    return AttentionCache(
        form=CacheForm.LATENT,
        block_tokens=block_tokens,
        num_heads=1,
        key_size=size + scales,
        value_size=0,
        dtype="uint8",
        tokens_per_state=tokens_per_state,
        alignment_bytes=alignment_bytes,
    )


def _cache(
    config: ModelConfig, options: ServingOptions, *, is_sparse: bool
) -> tuple[str, AttentionCache]:
    """The format's name, and one layer's latent vectors in it."""
    cache_dtype = _format(config, options, is_sparse=is_sparse)
    is_packed = cache_dtype == "fp8_ds_mla"
    if is_sparse or cache_dtype.startswith("fp8"):
        block = options.block_of(FLASHMLA_BLOCK_TOKENS, FLASHMLA_BLOCK_TOKENS)
    else:
        block = attention_block(options)
    return cache_dtype, AttentionCache(
        form=CacheForm.LATENT,
        block_tokens=block,
        num_heads=1,
        key_size=config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim"),
        value_size=0,
        dtype=entry_dtype(config, cache_dtype),
        record_bytes=PACKED_RECORD_BYTES if is_packed else None,
    )


def _format(config: ModelConfig, options: ServingOptions, *, is_sparse: bool) -> str:
    """The format's name; sparse kernels pack all that is asked for in 8 bits."""
    if is_sparse and options.cache_dtype == "fp8_ds_mla":
        return options.cache_dtype
    found = cache_dtype_of(config, options)
    return "fp8_ds_mla" if is_sparse and found.startswith("fp8") else found
