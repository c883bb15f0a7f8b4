"""DeepSeek-V4 and V4.1: windows, compressed caches, indexers, and compressors' states.

Block sizes and formats are those of GPUs of compute capability 9.

Source: models/deepseek_v4, models/deepseek_v41 and
v1/attention/backends/mla/sparse_swa.py, vLLM 0.32.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families.latent import indexer_cache
from kvcellar.layout.models.families.parts import ModelLayers
from kvcellar.layout.models.layer import AttentionCache, CacheForm, Layer
from kvcellar.layout.models.options import ServingOptions, share_of

V4_BLOCK_TOKENS, V4_WINDOW_BLOCK_TOKENS = 256, 64
V41_BLOCK_TOKENS, V41_WINDOW_BLOCK_TOKENS = 64, 32
RING_TOKENS = 8
"""Ring of the V4.1 compressor, without speculative decoding."""

STATE_BLOCK_TOKENS = {4: 4, 128: 8}
"""Block of a V4 compressor's state, by its ratio."""

PACKED_RECORD_BYTES = 584
"""One token in ``fp8_ds_mla``: 448 bytes, 64 bfloat16 entries, and 8 of scales."""

MODEL_VERSION = "deepseek_v4"


@dataclass(frozen=True, slots=True)
class _Format:
    """How latent vectors are stored.

    Attributes:
        name: the engine's name of the format.
        alignment_bytes: all pages are padded to multiples of this.
    """

    name: str
    dtype: str
    record_bytes: int | None
    alignment_bytes: int


_PACKED = _Format("fp8_ds_mla", "uint8", PACKED_RECORD_BYTES, 576)
_PLAIN = _Format("bfloat16", "bfloat16", None, 512)


def deepseek_v4(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """Each layer has a window; most also a cache compressed by 4 or by 128."""
    options.fixed_block(V4_BLOCK_TOKENS)
    ratios = _ratios(config, known=(0, 1, 4, 128))
    kept = _format(config, options)
    layers = (
        layer
        for index, ratio in enumerate(ratios)
        for layer in _v4_layer(config, kept, index, ratio)
    )
    return _model(config, options, kept, tuple(layers), are_ranks_identical=True)


def deepseek_v41(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """Few layers have a compressed cache; windows are recomputed after a hit."""
    options.fixed_block(V41_BLOCK_TOKENS)
    ratios = _ratios(config, known=(0, 1, 2))
    kept = _format(config, options)
    layers = (
        layer
        for index, ratio in enumerate(ratios)
        for layer in _v41_layer(config, kept, index, ratio)
    )
    return _model(config, options, kept, tuple(layers), are_ranks_identical=False)


def _model(
    config: ModelConfig,
    options: ServingOptions,
    kept: _Format,
    layers: tuple[Layer, ...],
    *,
    are_ranks_identical: bool,
) -> ModelLayers:
    heads = config.integer("num_attention_heads")
    share_of(heads, options.tensor_parallel, "attention heads")
    return ModelLayers(
        layers=layers,
        num_layers=config.num_layers,
        max_tokens=config.max_tokens,
        cache_dtype=kept.name,
        is_block_outer=True,
        are_ranks_identical=are_ranks_identical,
    )


def _ratios(config: ModelConfig, *, known: tuple[int, ...]) -> Sequence[Any]:
    ratios = config.sequence("compress_ratios", config.num_layers)
    if ratios is None:
        raise ConfigError(
            f"{config.name}: the configuration has no compress_ratios, which say what "
            "each layer keeps; pass the model's own config.json"
        )
    unknown = sorted({str(ratio) for ratio in ratios if ratio not in known})
    if unknown:
        raise IncompatibleError(
            f"{config.name}: compress_ratios names {', '.join(unknown)}; vLLM 0.32 has "
            f"compressors for {', '.join(map(str, known))} only"
        )
    return ratios


def _format(config: ModelConfig, options: ServingOptions) -> _Format:
    if options.cache_dtype == "float16":
        raise ConfigError(
            f"{config.name}: cache_dtype='float16' is not a format of this model's "
            "cache; use 'auto', 'fp8' or 'bfloat16'"
        )
    return _PLAIN if options.cache_dtype == "bfloat16" else _PACKED


def _v4_layer(
    config: ModelConfig, kept: _Format, index: int, ratio: int
) -> Iterator[Layer]:
    """Caches of one layer, in the order in which the model registers them."""
    head_size = config.integer("head_dim")
    block = V4_BLOCK_TOKENS
    if ratio == 4:
        state = _state(config.integer("index_head_dim"), ratio, kept)
        keys = indexer_cache(
            config,
            block,
            tokens_per_state=ratio,
            alignment_bytes=kept.alignment_bytes,
        )
        yield Layer(index, "attn.indexer.k_cache", keys)
        yield Layer(index, "attn.indexer.compressor.state_cache", state)
    window = _window(config, kept, V4_WINDOW_BLOCK_TOKENS)
    yield Layer(index, "attn.swa_cache", window)
    if ratio > 1:
        yield Layer(index, "attn", _compressed(head_size, kept, block, ratio))
        state = _state(head_size, ratio, kept)
        yield Layer(index, "attn.compressor.state_cache", state)


def _v41_layer(
    config: ModelConfig, kept: _Format, index: int, ratio: int
) -> Iterator[Layer]:
    head_size = config.integer("head_dim")
    block = V41_BLOCK_TOKENS
    is_source = index in (config.get("kv_source_layer_ids") or ())
    if is_source:
        yield Layer(index, "attn", _compressed(head_size, kept, block, ratio))
    if is_source and index in (config.get("index_source_layer_ids") or ()):
        keys = indexer_cache(
            config,
            block,
            tokens_per_state=ratio,
            alignment_bytes=kept.alignment_bytes,
        )
        yield Layer(index, "attn.indexer.k_cache", keys)
    window = _window(config, kept, V41_WINDOW_BLOCK_TOKENS, is_replayed=True)
    yield Layer(index, "attn.swa_cache", window)
    if is_source and ratio > 1:
        yield Layer(index, "attn.compressor.state_cache", _ring(head_size))


def _window(
    config: ModelConfig, kept: _Format, block_tokens: int, *, is_replayed: bool = False
) -> AttentionCache:
    return AttentionCache(
        form=CacheForm.LATENT_WINDOW,
        block_tokens=block_tokens,
        num_heads=1,
        key_size=config.integer("head_dim"),
        value_size=0,
        dtype=kept.dtype,
        span_tokens=config.integer("sliding_window"),
        record_bytes=kept.record_bytes,
        alignment_bytes=kept.alignment_bytes,
        is_replayed=is_replayed,
        model_version=MODEL_VERSION,
    )


def _compressed(
    head_size: int, kept: _Format, block_tokens: int, ratio: int
) -> AttentionCache:
    return AttentionCache(
        form=CacheForm.LATENT,
        block_tokens=block_tokens,
        num_heads=1,
        key_size=head_size,
        value_size=0,
        dtype=kept.dtype,
        tokens_per_state=ratio,
        record_bytes=kept.record_bytes,
        alignment_bytes=kept.alignment_bytes,
        model_version=MODEL_VERSION,
    )


def _state(size: int, ratio: int, kept: _Format) -> AttentionCache:
    """Values and scores of tokens still to be compressed; by 4 overlaps by a group."""
    num_groups = 2 if ratio == 4 else 1
    return AttentionCache(
        form=CacheForm.LATENT_WINDOW,
        block_tokens=STATE_BLOCK_TOKENS[ratio],
        num_heads=1,
        key_size=2 * num_groups * size,
        value_size=0,
        dtype="float32",
        span_tokens=num_groups * ratio,
        alignment_bytes=kept.alignment_bytes,
        compressor_ratio=ratio,
    )


def _ring(size: int) -> AttentionCache:
    """Values and scores of the open group, one block per request."""
    return AttentionCache(
        form=CacheForm.RING,
        block_tokens=RING_TOKENS,
        num_heads=1,
        key_size=2 * size,
        value_size=0,
        dtype="float32",
    )
