"""A device cache and host memory of their own, to try copies without an engine."""

import contextlib
import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.cuda import CudaDevice
from kvcellar.device.device import Device
from kvcellar.device.driver import Driver
from kvcellar.device.pieces import cut_pieces
from kvcellar.device.pinning import PinnedMemory
from kvcellar.device.regions import PageTensor, Region, regions_from_tensors
from kvcellar.errors import ConfigError
from kvcellar.layout.groups import CacheLayout, plain_layout
from kvcellar.layout.host import HostGeometry, plan_geometry
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

NUM_LAYERS = 8


@dataclass(frozen=True, slots=True)
class TrialShape:
    """One group whose layers lie one after another, as engines often lay them out.

    Attributes:
        page_bytes: of one block in one layer.
        cache_bytes: of the device cache, and about as much host memory.
    """

    page_bytes: int
    cache_bytes: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, all layers together."""
        return self.page_bytes * NUM_LAYERS

    @property
    def num_blocks(self) -> int:
        """Blocks of the device cache."""
        return self.cache_bytes // self.block_bytes

    def layout(self) -> CacheLayout:
        """The layout of an engine with such a cache."""
        return plain_layout(self.block_bytes, NUM_LAYERS)

    def regions(self, cache_address: int) -> list[tuple[Region, ...]]:
        """Where the pages lie."""
        pages = PageTensor(
            storage_address=cache_address,
            storage_bytes=self.cache_bytes,
            offset_bytes=0,
            layer_stride_bytes=self.page_bytes * self.num_blocks,
            block_stride_bytes=self.page_bytes,
            num_layers=NUM_LAYERS,
            payload_bytes=self.page_bytes,
        )
        return [regions_from_tensors([pages], self.num_blocks)]


@dataclass(frozen=True, slots=True)
class Trial:
    """A device that is ready to copy, between memory that has been touched.

    Attributes:
        device: used on the thread that opened it.
        name: what it is.
        num_host_blocks: of host memory.
        pin_seconds: locking host memory took so long; None where nothing is locked.
    """

    device: Device
    name: str
    shape: TrialShape
    num_host_blocks: int
    pinned_bytes: int = 0
    pin_seconds: float | None = None

    def job(self, direction: Direction, seed: int) -> CopyJob:
        """Copy half of the blocks, chosen at random, to or from random host blocks."""
        rng = np.random.default_rng(seed)
        num_blocks = min(self.shape.num_blocks, self.num_host_blocks) // 2
        device = rng.permutation(self.shape.num_blocks)[:num_blocks]
        host = rng.permutation(self.num_host_blocks)[:num_blocks]
        return CopyJob(seed, direction, (GroupCopy(0, device, host),))


@contextlib.contextmanager
def open_trial(kind: str, shape: TrialShape) -> Iterator[Trial]:
    """A device of a kind, ``"cpu"`` or ``"cuda"``, until the ``with`` block ends.

    Raises:
        ConfigError: there is no such device here, or not the memory.
    """
    problem = device_problem(kind)
    if problem is not None:
        raise ConfigError(f"device={kind!r} cannot be measured: {problem}")
    with HostMemory(plan_geometry(shape.layout(), shape.cache_bytes)) as memory:
        memory.array[:] = 1
        if kind == "cpu":
            cache = np.full(shape.cache_bytes, 2, dtype=np.uint8)  # alive until the end
            yield _on_processor(shape, memory, int(cache.ctypes.data))
            return
        # By name: who measures only the processor must not load torch.
        graphics = importlib.import_module("kvcellar.device.trial_gpu")
        with (
            graphics.open_gpu(shape, memory) as (address, driver, name),
            on_accelerator(shape, memory, address, driver) as trial,
        ):
            yield replace(trial, name=name)


def device_problem(kind: str) -> str | None:
    """Why copies of a kind cannot be tried here; None if they can.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind == "cpu":
        return None
    if kind != "cuda":
        raise ConfigError(f"device={kind!r} is unknown; use cpu or cuda")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return "torch is not installed; install it, or measure the cpu"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device; check the driver, or measure the cpu"
    return None


def _on_processor(shape: TrialShape, memory: HostMemory, address: int) -> Trial:
    geometry = plan_geometry(shape.layout(), shape.cache_bytes)
    device = CpuDevice(
        shape.layout(),
        geometry,
        shape.regions(address),
        num_blocks=shape.num_blocks,
        host_address=memory.address,
    )
    return Trial(device, "cpu", shape, _num_host_blocks(geometry))


@contextlib.contextmanager
def on_accelerator(
    shape: TrialShape, memory: HostMemory, address: int, driver: Driver
) -> Iterator[Trial]:
    """Lock all of host memory, and copy on the driver's streams until the block ends.

    Args:
        address: of the cache, in the accelerator's memory.

    Raises:
        DeviceError: the driver refuses.
    """
    geometry = plan_geometry(shape.layout(), shape.cache_bytes)
    driver.attach_thread()
    pinned = PinnedMemory(cut_pieces(memory.address, geometry))
    started = time.perf_counter()
    for piece in range(pinned.num_pieces):
        pinned.pin(driver, piece)
    pin_seconds = time.perf_counter() - started
    device = CudaDevice(
        shape.layout(),
        geometry,
        shape.regions(address),
        num_blocks=shape.num_blocks,
        memory=pinned,
        driver=driver,
    )
    num_blocks, num_bytes = _num_host_blocks(geometry), pinned.pinned_bytes
    try:
        yield Trial(device, "cuda", shape, num_blocks, num_bytes, pin_seconds)
    finally:
        device.close()
        pinned.unpin_all(driver)


def _num_host_blocks(geometry: HostGeometry) -> int:
    return geometry.num_slabs * geometry.classes[0].cells_per_slab
