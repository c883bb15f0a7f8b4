"""The engine's way of cutting layers into groups that share a block table.

    all caches the same, or of one type    -> one group, whatever the page sizes
    all layers' pages lie within a block   -> packed groups (``packing``)
    otherwise                              -> pages made equal, groups of equal length

Source: get_kv_cache_groups and what it calls in v1/core/kv_cache_utils.py, vLLM 0.32,
for one context-parallel rank and without speculative decoding.
"""

from collections.abc import Sequence
from typing import TypeAlias

from kvcellar.errors import IncompatibleError
from kvcellar.layout.models.layer import (
    CacheForm,
    Layer,
    LayerCache,
    StateCache,
    with_block,
    with_page,
)
from kvcellar.layout.models.packing import pack
from kvcellar.layout.models.sameness import are_one_type

Group: TypeAlias = tuple[Layer, ...]

PADDED_SHARE = 1.5
"""Kinds whose layer counts differ by less than this factor get groups of the larger.

Source: ``_get_kv_cache_groups_uniform_page_size``, vLLM 0.32.
"""


def group_layers(layers: Sequence[Layer], *, is_block_outer: bool) -> tuple[Group, ...]:
    """Cut a model's layers into groups.

    Args:
        layers: of the whole model, in the order in which it registers them.
        is_block_outer: whether a block holds all layers' pages side by side.

    Raises:
        IncompatibleError: the engine has no way to lay these layers out.
    """
    caches = [layer.cache for layer in layers]
    if len(set(caches)) == 1 or are_one_type(caches):
        return (tuple(layers),)
    if is_block_outer and len({cache.page_bytes for cache in caches}) > 1:
        return pack(layers)
    return _equal_groups(_equal_pages(layers))


def _equal_pages(layers: Sequence[Layer]) -> list[Layer]:
    """The layers with one page size: by longer blocks where that fits, or padding."""
    largest = max(layer.cache.page_bytes for layer in layers)
    return [_with_page_of(layer, largest) for layer in layers]


def _with_page_of(layer: Layer, page_bytes: int) -> Layer:
    cache = layer.cache
    if cache.page_bytes == page_bytes:
        return layer
    if isinstance(cache, StateCache):
        return with_page(layer, page_bytes)
    if page_bytes % cache.page_bytes == 0:
        return with_block(layer, cache.block_tokens * page_bytes // cache.page_bytes)
    if cache.form is CacheForm.LATENT:
        raise IncompatibleError(
            f"layer {layer.name} keeps {cache.page_bytes} bytes per block, which do "
            f"not divide the {page_bytes} of another layer, and a latent cache cannot "
            "be padded; kvcellar cannot plan this mix of layers without the engine"
        )
    return with_page(layer, page_bytes)


def _equal_groups(layers: Sequence[Layer]) -> tuple[Group, ...]:
    """Each kind of layer in groups of one length, the last padded with nothing.

    Layers are dealt out in turn, so that every pipeline stage gets some of each group.
    """
    by_cache: dict[LayerCache, list[Layer]] = {}
    for layer in layers:
        by_cache.setdefault(layer.cache, []).append(layer)
    lengths = [len(same) for same in by_cache.values()]
    fewest, most = min(lengths), max(lengths)
    length = most if most < fewest * PADDED_SHARE else fewest
    groups: list[Group] = []
    for same in by_cache.values():
        num_groups = -(-len(same) // length)
        groups += [tuple(same[i::num_groups]) for i in range(num_groups)]
    return tuple(groups)
