"""Groups of layers with different pages, packed side by side within a block.

    group 0   | A | A | B | B | pad |      one block of the pool: as wide as the
    group 1   |   C   |   C   | pad |      widest group, whichever group owns it

Layers of one type go into one bucket. Where a bucket repeats a pattern of one layer per
page size, its number of repeats sets how many the other buckets' groups get, so that
all groups are about as wide. States and the like are cut to the width that the rest
needs anyway.

Source: _get_packed_kv_cache_groups, v1/core/kv_cache_utils.py, vLLM 0.32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kvcellar.errors import IncompatibleError
from kvcellar.layout.models.layer import CacheForm, Layer
from kvcellar.layout.models.sameness import are_one_type

Group: TypeAlias = tuple[Layer, ...]

_SPLIT_FORMS = {CacheForm.STATE, CacheForm.RING}
_WINDOW_FORMS = {CacheForm.WINDOW, CacheForm.LATENT_WINDOW}


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers of one type, also by the size of their pages."""

    layers: Group
    by_page: dict[int, list[Layer]]

    @property
    def num_repeats(self) -> int:
        """Layers of the most common page size."""
        return max(len(same) for same in self.by_page.values())

    @property
    def is_pattern(self) -> bool:
        """Whether it has as many layers of each page size."""
        return len({len(same) for same in self.by_page.values()}) == 1

    @property
    def form(self) -> CacheForm:
        return self.layers[0].cache.form

    def widest_bytes(self, num_groups: int) -> int:
        """Bytes of a block of the widest of ``num_groups`` groups."""
        return sum(
            page * -(-len(same) // num_groups) for page, same in self.by_page.items()
        )


def pack(layers: Sequence[Layer]) -> tuple[Group, ...]:
    """Cut layers with several page sizes into groups.

    Raises:
        IncompatibleError: the engine would lose layers doing so.
    """
    buckets = _buckets(layers)
    repeats = _repeats_per_group(buckets)
    block_bytes = max(_least_bytes(bucket, repeats) for bucket in buckets)
    return tuple(
        group
        for bucket in buckets
        for group in _cut(bucket, _num_groups(bucket, repeats, block_bytes))
    )


def _buckets(layers: Sequence[Layer]) -> list[_Bucket]:
    """Each layer in the first bucket that it fits."""
    filled: list[list[Layer]] = []
    for layer in layers:
        fitting = (b for b in filled if are_one_type([b[0].cache, layer.cache]))
        bucket = next(fitting, None)
        if bucket is None:
            filled.append([layer])
        else:
            bucket.append(layer)
    return [_Bucket(tuple(bucket), _by_page(bucket)) for bucket in filled]


def _by_page(layers: Sequence[Layer]) -> dict[int, list[Layer]]:
    by_page: dict[int, list[Layer]] = {}
    for layer in layers:
        by_page.setdefault(layer.cache.page_bytes, []).append(layer)
    return by_page


def _repeats_per_group(buckets: Sequence[_Bucket]) -> int | None:
    """Repeats that leave the least padding; None if no bucket has several pages.

    A bucket of several pages is never cut, so its repeats are the least.
    """
    patterns = [bucket for bucket in buckets if bucket.is_pattern]
    uncut = [b.num_repeats for b in patterns if len(b.by_page) > 1]
    if not uncut:
        return None
    counts = [bucket.num_repeats for bucket in patterns]
    return min(
        range(max(uncut), max(counts) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
    )


def _is_cut_freely(bucket: _Bucket, repeats: int | None) -> bool:
    is_uncut_window = repeats is None and bucket.form in _WINDOW_FORMS
    return bucket.form in _SPLIT_FORMS or is_uncut_window


def _num_pattern_groups(bucket: _Bucket, repeats: int | None) -> int:
    if repeats is None or not bucket.is_pattern:
        return 1
    return -(-bucket.num_repeats // repeats)


def _least_bytes(bucket: _Bucket, repeats: int | None) -> int:
    """Bytes that a block must hold for the bucket, however far it may be cut."""
    if _is_cut_freely(bucket, repeats):
        return bucket.widest_bytes(len(bucket.layers))
    return bucket.widest_bytes(_num_pattern_groups(bucket, repeats))


def _num_groups(bucket: _Bucket, repeats: int | None, block_bytes: int) -> int:
    num_groups = _num_pattern_groups(bucket, repeats)
    if not _is_cut_freely(bucket, repeats):
        return num_groups
    per_block = max(block_bytes // bucket.layers[0].cache.page_bytes, 1)
    return max(num_groups, -(-len(bucket.layers) // per_block))


def _cut(bucket: _Bucket, num_groups: int) -> list[Group]:
    if num_groups == 1:
        return [bucket.layers]
    if not bucket.is_pattern or bucket.num_repeats < num_groups:
        counts = {page: len(same) for page, same in bucket.by_page.items()}
        raise IncompatibleError(
            f"{bucket.form} layers with several page sizes (layers by bytes: {counts}) "
            f"would have to be cut into {num_groups} groups, which the engine cannot do"
        )
    repeats = list(zip(*bucket.by_page.values(), strict=True))
    return [
        tuple(layer for repeat in repeats[i::num_groups] for layer in repeat)
        for i in range(num_groups)
    ]
