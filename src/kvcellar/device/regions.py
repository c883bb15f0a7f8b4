"""Where a group's bytes lie in the device cache: one region per layer page.

    storage  [ ... page of block 0 | pad | page of block 1 | pad | ... ]
                   ^base             <--- stride --->

The page of layer l, block b starts at ``offset + l * layer_stride + b * block_stride``
of one backing allocation, whatever the engine's layout. Every address is checked here,
once, so that no copy can leave the allocation.

Source: KVCacheTensor in v1/kv_cache_interface.py, vLLM 0.32.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvcellar.errors import IncompatibleError


@dataclass(frozen=True, slots=True)
class PageTensor:
    """Equal pages of some layers of one group, in plain numbers.

    Attributes:
        storage_address: address of the backing allocation.
        storage_bytes: its size.
        offset_bytes: where the page of the first layer's block 0 starts in it.
        layer_stride_bytes: from a layer's page to the next layer's.
        block_stride_bytes: from a block's page to the next block's.
        num_layers: layers that this rank has; 0 leaves the tensor out.
        payload_bytes: bytes of a page that layers read, without padding.
    """

    storage_address: int
    storage_bytes: int
    offset_bytes: int
    layer_stride_bytes: int
    block_stride_bytes: int
    num_layers: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of every block b: ``payload_bytes`` at ``base_address + b * stride``."""

    base_address: int
    block_stride_bytes: int
    payload_bytes: int


def regions_from_tensors(
    tensors: Iterable[PageTensor], num_blocks: int
) -> tuple[Region, ...]:
    """Build one group's regions, by address, merging those whose payloads touch.

    Args:
        tensors: all tensors that hold layers of the group.
        num_blocks: blocks in the device cache; ids are below this.

    Raises:
        IncompatibleError: a page would leave its allocation, or pages overlap.
    """
    pages = [
        page for tensor in tensors for page in _pages_of_tensor(tensor, num_blocks)
    ]
    regions = _merge_touching(sorted(pages, key=lambda page: page.base_address))
    if num_blocks > 1:
        for region in regions:
            _check_stride(region)
    return regions


def _merge_touching(pages: Sequence[Region]) -> tuple[Region, ...]:
    """Join neighbours of one stride; a block-outermost layout becomes a few runs."""
    merged: list[Region] = []
    for page in pages:
        last = merged[-1] if merged else page
        end = last.base_address + last.payload_bytes
        is_comparable = last.block_stride_bytes == page.block_stride_bytes
        if merged and is_comparable and page.base_address < end:
            raise IncompatibleError(
                f"two pages of one block overlap: one ends at address {end}, the next "
                f"starts at {page.base_address}; the engine's cache layout is not one "
                "kvcellar can copy"
            )
        if merged and is_comparable and page.base_address == end:
            payload_bytes = last.payload_bytes + page.payload_bytes
            merged[-1] = dataclasses.replace(last, payload_bytes=payload_bytes)
        else:
            merged.append(page)
    return tuple(merged)


def _pages_of_tensor(tensor: PageTensor, num_blocks: int) -> Iterator[Region]:
    for layer in range(tensor.num_layers):
        start = tensor.offset_bytes + layer * tensor.layer_stride_bytes
        end = start + (num_blocks - 1) * tensor.block_stride_bytes
        end += tensor.payload_bytes
        is_inside = 0 <= start < end <= tensor.storage_bytes
        if not is_inside or min(num_blocks, tensor.payload_bytes) <= 0:
            raise IncompatibleError(
                f"layer {layer} of a cache tensor would use bytes [{start}, {end}) of "
                f"an allocation of {tensor.storage_bytes} bytes for {num_blocks} "
                f"blocks of {tensor.payload_bytes} bytes; the engine's cache layout "
                "is not one kvcellar can copy"
            )
        yield Region(
            tensor.storage_address + start,
            tensor.block_stride_bytes,
            tensor.payload_bytes,
        )


def _check_stride(region: Region) -> None:
    if region.block_stride_bytes < region.payload_bytes:
        raise IncompatibleError(
            f"pages of {region.payload_bytes} bytes lie {region.block_stride_bytes} "
            "bytes apart, so blocks would overlap; the engine's cache layout is not "
            "one kvcellar can copy"
        )
