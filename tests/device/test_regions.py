"""Regions: the device cache in plain numbers, checked before anything is copied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.device.regions import PageTensor, Region, regions_from_tensors
from kvcellar.errors import IncompatibleError

BASE = 10_000


def tensor(**changes: int) -> PageTensor:
    fields = {
        "storage_address": BASE,
        "storage_bytes": 4 * 3 * 100,
        "offset_bytes": 0,
        "layer_stride_bytes": 400,
        "block_stride_bytes": 100,
        "num_layers": 3,
        "payload_bytes": 90,
    }
    return PageTensor(**{**fields, **changes})


def test_layer_outermost_pages_stay_one_region_per_layer() -> None:
    """Layers far apart are separate regions with the tensor's stride and payload."""
    expected = tuple(Region(BASE + 400 * layer, 100, 90) for layer in range(3))
    assert expected == regions_from_tensors([tensor()], num_blocks=4)


def test_block_outermost_pages_without_padding_become_one_region() -> None:
    """A whole block's layers lie side by side, so one run copies them all."""
    tensors = [tensor(layer_stride_bytes=90, block_stride_bytes=300)]
    assert (Region(BASE, 300, 270),) == regions_from_tensors(tensors, num_blocks=4)


def test_padding_between_pages_is_not_copied() -> None:
    """Pages with padding between them do not touch and are not merged."""
    tensors = [tensor(layer_stride_bytes=100, block_stride_bytes=300)]
    assert [90, 90, 90] == [r.payload_bytes for r in regions_from_tensors(tensors, 4)]


def test_tensors_of_two_specs_merge_where_they_touch() -> None:
    """Two page sizes in one block: the second starts where the first ends."""
    first = tensor(num_layers=2, layer_stride_bytes=90, block_stride_bytes=300)
    second = tensor(
        offset_bytes=180, num_layers=1, block_stride_bytes=300, payload_bytes=50
    )
    assert (Region(BASE, 300, 230),) == regions_from_tensors([second, first], 4)


def test_tensor_that_no_layer_uses_is_left_out() -> None:
    """A tensor of another pipeline rank adds no region, whatever its numbers say."""
    unused = tensor(num_layers=0, offset_bytes=10**9)
    assert 3 == len(regions_from_tensors([unused, tensor()], num_blocks=4))


def test_touching_layers_of_a_single_block_are_not_an_overlap() -> None:
    """With one block the stride is never used, so a merged run may be longer."""
    tensors = [tensor(layer_stride_bytes=90, block_stride_bytes=90)]
    assert (Region(BASE, 90, 270),) == regions_from_tensors(tensors, num_blocks=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"offset_bytes": 11},
        {"offset_bytes": -1},
        {"layer_stride_bytes": 406},
        {"block_stride_bytes": 104},
        {"payload_bytes": 101},
        {"payload_bytes": 0},
        {"num_layers": 4},
        {"storage_bytes": 1189},
    ],
)
def test_page_outside_its_allocation_is_refused(changes: dict[str, int]) -> None:
    """The last byte of the last block of the last layer must lie inside."""
    with pytest.raises(IncompatibleError, match="of an allocation of"):
        regions_from_tensors([tensor(**changes)], num_blocks=4)


def test_cache_without_blocks_is_refused() -> None:
    """No block, no region."""
    with pytest.raises(IncompatibleError, match="for 0 blocks"):
        regions_from_tensors([tensor()], num_blocks=0)


def test_unsigned_pages_of_576_and_584_bytes_stay_inside() -> None:
    """Two groups padded to different strides: every page lies in its allocation."""
    for payload in (576, 584):
        pages = tensor(
            storage_bytes=640 * 5 * 2,
            layer_stride_bytes=640 * 5,
            block_stride_bytes=640,
            num_layers=2,
            payload_bytes=payload,
        )
        last = regions_from_tensors([pages], num_blocks=5)[-1]
        end = last.base_address + 4 * last.block_stride_bytes + last.payload_bytes
        assert BASE + 640 * 10 - 640 + payload == end


def test_blocks_that_overlap_are_refused() -> None:
    """A stride below the payload would let one block overwrite the next."""
    with pytest.raises(IncompatibleError, match="blocks would overlap"):
        regions_from_tensors([tensor(block_stride_bytes=80)], num_blocks=4)


def test_layers_that_overlap_are_refused() -> None:
    """Two layers sharing bytes of one block cannot both be copied."""
    with pytest.raises(IncompatibleError, match="overlap"):
        regions_from_tensors([tensor(layer_stride_bytes=50)], num_blocks=4)


@given(
    num_layers=st.integers(1, 6),
    num_blocks=st.integers(1, 9),
    payload=st.integers(1, 64),
    padding=st.integers(0, 9),
)
def test_merging_keeps_every_byte(
    num_layers: int, num_blocks: int, payload: int, padding: int
) -> None:
    """Merged regions cover exactly the payload bytes of every block, each once."""
    page = payload + padding
    row = page * num_layers
    pages = PageTensor(0, row * num_blocks, 0, page, row, num_layers, payload)
    covered = sorted(
        byte
        for region in regions_from_tensors([pages], num_blocks)
        for block in range(num_blocks)
        for start in [region.base_address + block * region.block_stride_bytes]
        for byte in range(start, start + region.payload_bytes)
    )
    expected = sorted(
        block * row + layer * page + byte
        for block in range(num_blocks)
        for layer in range(num_layers)
        for byte in range(payload)
    )
    assert expected == covered
