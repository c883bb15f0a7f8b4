"""Which caches the engine counts as one type, so that one block table serves them.

Source: ``UniformTypeKVCacheSpecs.is_uniform_type``, and ``is_uniform_with_collection``
of the spec classes, v1/kv_cache_interface.py, vLLM 0.32.
"""

from collections.abc import Sequence

from kvcellar.layout.models.layer import (
    AttentionCache,
    CacheForm,
    LayerCache,
    StateCache,
)

_FULL_FORMS = {CacheForm.FULL, CacheForm.LATENT}
_WINDOW_FORMS = {CacheForm.WINDOW, CacheForm.LATENT_WINDOW}


def are_one_type(caches: Sequence[LayerCache]) -> bool:
    """Whether all caches need the same blocks. The first one decides what counts.

    Args:
        caches: at least one, in the order of their layers.
    """
    first = caches[0]
    return all(
        cache.block_tokens == first.block_tokens and _agrees(first, cache)
        for cache in caches
    )


def _agrees(first: LayerCache, other: LayerCache) -> bool:
    if isinstance(first, StateCache) or isinstance(other, StateCache):
        return _are_like_states(first, other)
    if first.form in _FULL_FORMS:
        return other.form in _FULL_FORMS
    if first.form is CacheForm.WINDOW:
        return other.form in _WINDOW_FORMS and other.span_tokens == first.span_tokens
    if first.form is CacheForm.LATENT_WINDOW:
        return _are_like_latent_windows(first, other)
    return other.form is first.form and other.span_tokens == first.span_tokens


def _are_like_states(first: LayerCache, other: LayerCache) -> bool:
    return (
        isinstance(first, StateCache)
        and isinstance(other, StateCache)
        and first.page_bytes == other.page_bytes
        and first.num_checkpoint_blocks == other.num_checkpoint_blocks
    )


def _are_like_latent_windows(first: AttentionCache, other: AttentionCache) -> bool:
    return (
        other.form is CacheForm.LATENT_WINDOW
        and other.span_tokens == first.span_tokens
        and other.is_replayed == first.is_replayed
    )
