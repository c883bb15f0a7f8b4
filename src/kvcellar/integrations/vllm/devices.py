"""The device that the engine's cache lies on, and what carries out jobs there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.cuda import CudaDevice
from kvcellar.device.numa import PageProvider, node_of
from kvcellar.device.pieces import cut_pieces
from kvcellar.device.pinning import PinnedMemory, PinningThread
from kvcellar.device.torch_driver import open_driver, open_libcuda
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.stream_engine import StreamEngine

if TYPE_CHECKING:
    from kvcellar.device.copiers import BatchOperator
    from kvcellar.device.device import Device
    from kvcellar.device.driver import Driver
    from kvcellar.device.pinning import Prepare
    from kvcellar.device.regions import Region
    from kvcellar.layout.groups import CacheLayout
    from kvcellar.layout.host import HostGeometry
    from kvcellar.tiers.memory import HostMemory
    from kvcellar.transfer.arena_share import ArenaShare


@dataclass(frozen=True)
class Place:
    """Both sides of this rank's copies.

    Attributes:
        regions: for each layout position.
        num_blocks: blocks in the device cache.
        memory: the arena.
        share: this rank's part in it, if several ranks share it.
    """

    layout: "CacheLayout"
    geometry: "HostGeometry"
    regions: "Sequence[Sequence[Region]]"
    num_blocks: int
    memory: "HostMemory"
    share: "ArenaShare | None" = None


@dataclass(frozen=True)
class OpenDevice:
    """A device at work.

    Attributes:
        device: copies between cache and host memory.
        transfers: carries out jobs in the background.
        release: gives up what is held of host memory, once no copy runs; whether that
            memory may be unmapped.
    """

    device: "Device"
    transfers: TransferEngine | StreamEngine
    release: Callable[[float], bool]


def open_device(place: Place, kv_caches: "Mapping[str, torch.Tensor]") -> OpenDevice:
    """Open the device that the tensors lie on.

    Raises:
        IncompatibleError: regions and layout disagree about a group's bytes.
    """
    cache = next(iter(kv_caches.values()))
    if cache.device.type == "cpu":
        return _on_processor(place)
    driver = open_driver(cache, place.memory.array, engine_operator())
    return on_accelerator(place, driver, PageProvider(_near_node(cache.device)))


def _on_processor(place: Place) -> OpenDevice:
    device = CpuDevice(
        place.layout,
        place.geometry,
        place.regions,
        num_blocks=place.num_blocks,
        host_address=place.memory.address,
    )
    return OpenDevice(device, TransferEngine(device, place.share), lambda _: True)


def on_accelerator(place: Place, driver: "Driver", prepare: "Prepare") -> OpenDevice:
    """Copies on streams of their own, while host memory is being pinned.

    Args:
        driver: the accelerator.
        prepare: has the kernel provide pages before they are pinned.

    Raises:
        IncompatibleError: regions and layout disagree about a group's bytes.
    """
    memory = PinnedMemory(cut_pieces(place.memory.address, place.geometry))
    device = CudaDevice(
        place.layout,
        place.geometry,
        place.regions,
        num_blocks=place.num_blocks,
        memory=memory,
        driver=driver,
    )
    pinning = PinningThread(memory, driver, prepare)
    return OpenDevice(device, StreamEngine(device, place.share), pinning.close)


def engine_operator() -> "BatchOperator | None":
    """VLLM's own batched copy, where this build has it.

    Source: swap_blocks_batch in _custom_ops.py, vLLM 0.32.
    """
    operators = torch.ops._C_cache_ops
    operator = getattr(operators, "swap_blocks_batch", None)
    if operator is None:
        return None

    def copy(
        sources: torch.Tensor, destinations: torch.Tensor, sizes: torch.Tensor
    ) -> None:
        """Read sources in stream order."""
        operator(sources, destinations, sizes, False)  # noqa: FBT003

    return copy


def _near_node(device: torch.device) -> int | None:
    library = open_libcuda(device)
    if library is None:
        return None
    index = device.index if device.index is not None else torch.cuda.current_device()
    return node_of(library.pci_address(index))
