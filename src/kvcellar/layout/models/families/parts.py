"""What the families' layers have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kvcellar.errors import ConfigError
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.layer import AttentionCache, CacheForm, Layer, LayerCache
from kvcellar.layout.models.options import (
    DEFAULT_BLOCK_TOKENS,
    KERNEL_BLOCK_TOKENS,
    ServingOptions,
    heads_per_rank,
    share_of,
)


@dataclass(frozen=True, slots=True)
class ModelLayers:
    """A model's layers on one tensor-parallel rank, all pipeline stages together.

    Attributes:
        layers: in the order in which the model registers them.
        num_layers: decoder layers, those without a cache included.
        max_tokens: the longest context.
        cache_dtype: the format of keys and values, by the engine's name.
        is_block_outer: whether the engine lays out a block with all layers' pages.
        are_ranks_identical: whether all tensor-parallel ranks hold the same bytes.
    """

    layers: tuple[Layer, ...]
    num_layers: int
    max_tokens: int
    cache_dtype: str
    is_block_outer: bool = False
    are_ranks_identical: bool = False


Family: TypeAlias = Callable[[ModelConfig, ServingOptions], ModelLayers]


@dataclass(frozen=True, slots=True)
class Heads:
    """Ordinary keys and values of one layer on one rank.

    Attributes:
        num: KV heads.
        size: entries per head, of a key and of a value.
        dtype: type of an entry in the cache.
    """

    num: int
    size: int
    dtype: str

    def cache(
        self, block_tokens: int, form: CacheForm, span_tokens: int | None = None
    ) -> AttentionCache:
        """What a layer with these heads keeps."""
        return AttentionCache(
            form=form,
            block_tokens=block_tokens,
            num_heads=self.num,
            key_size=self.size,
            value_size=self.size,
            dtype=self.dtype,
            span_tokens=span_tokens,
        )


def heads_of(config: ModelConfig, options: ServingOptions) -> Heads:
    """One rank's heads.

    Raises:
        ConfigError: they cannot be shared among that many ranks.
    """
    queries = config.integer("num_attention_heads")
    share_of(queries, options.tensor_parallel, "attention heads")
    total = config.integer("num_key_value_heads", "num_kv_heads", default=queries)
    num_heads = heads_per_rank(total, options.tensor_parallel)
    dtype = entry_dtype(config, cache_dtype_of(config, options))
    return Heads(num_heads, config.head_size, dtype)


def cache_dtype_of(config: ModelConfig, options: ServingOptions) -> str:
    """The cache's format, with ``auto`` resolved as far as the checkpoint does.

    Raises:
        ConfigError: the format is for sparse latent caches only.
    """
    found = options.cache_dtype
    if found == "fp8_ds_mla":
        raise ConfigError(
            f"{config.name}: cache_dtype='fp8_ds_mla' is for models with sparse latent "
            "attention; use 'fp8' or 'auto'"
        )
    if found == "auto":
        found = config.stored_cache_dtype
    return config.dtype if found == "auto" else found


def entry_dtype(config: ModelConfig, cache_dtype: str) -> str:
    """Type of one entry of a cache of format ``cache_dtype``."""
    if cache_dtype.startswith("fp8"):
        return "uint8"
    return config.dtype if cache_dtype == "auto" else cache_dtype


def attention_block(options: ServingOptions) -> int:
    """Tokens per block of ordinary attention."""
    return options.block_of(KERNEL_BLOCK_TOKENS, DEFAULT_BLOCK_TOKENS)


def stack(
    config: ModelConfig, options: ServingOptions, caches: list[LayerCache | None]
) -> ModelLayers:
    """A model with at most one cache per decoder layer, in their order.

    Args:
        caches: None for a decoder layer that keeps none.
    """
    layers = tuple(
        Layer(index, "attn", cache)
        for index, cache in enumerate(caches)
        if cache is not None
    )
    return ModelLayers(
        layers, len(caches), config.max_tokens, cache_dtype_of(config, options)
    )
