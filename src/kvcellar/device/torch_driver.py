"""Real accelerators: PyTorch's streams and events, and a copier for the bytes.

Tried on none yet: it is written against the documented interfaces. ``make gpu-check``
tries it. ROCm and XPU get what falls out of PyTorch's stream interface.
"""

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvcellar.device.copiers import BatchOperator, Copier, CudaCopier, TensorCopier
from kvcellar.device.driver import Event, Runs, Stream
from kvcellar.device.libcuda import LibCuda

logger = logging.getLogger(__name__)


class TorchDriver:
    """One accelerator, by PyTorch's module for its kind.

    Args:
        device: with its index, such as ``cuda:0``.
        copier: moves the bytes.
        module: ``torch.cuda`` or its like; None takes the one for ``device``.
    """

    def __init__(
        self, device: torch.device, copier: Copier, module: Any = None
    ) -> None:
        self._device = device
        self._copier = copier
        self._module = module or getattr(torch, device.type)

    def attach_thread(self) -> None:
        """Make the calling thread work on this device."""
        self._module.set_device(self._device)
        self._copier.attach_thread()

    def compute_stream(self) -> Stream:
        """The calling thread's current stream."""
        return self._module.current_stream(self._device)

    def new_stream(self, name: str) -> Stream:
        """A stream of the lowest priority there is."""
        del name
        stream_class = self._module.Stream
        priorities = getattr(stream_class, "priority_range", None)
        lowest = priorities()[0] if priorities is not None else 0
        return stream_class(device=self._device, priority=lowest)

    def record(self, stream: Stream) -> Event:
        """Put a new mark behind the work queued so far."""
        event = self._module.Event(enable_timing=True)
        event.record(stream)
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        """Let later work of ``stream`` start only after ``event``."""
        stream.wait_event(event)

    def is_done(self, event: Event) -> bool:
        """Whether the work before the mark has ended."""
        return bool(event.query())

    def seconds_between(self, begin: Event, end: Event) -> float:
        """Time on the device between two passed marks."""
        return float(begin.elapsed_time(end)) / 1e3

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """Queue copies."""
        if len(runs):
            self._copier.copy(stream, runs, is_pinned=is_pinned)

    def register(self, address: int, num_bytes: int) -> None:
        """Lock host memory."""
        self._copier.register(address, num_bytes)

    def unregister(self, address: int) -> None:
        """Unlock host memory."""
        self._copier.unregister(address)


def open_driver(
    cache: torch.Tensor,
    host: npt.NDArray[np.uint8],
    operator: BatchOperator | None = None,
) -> TorchDriver:
    """The driver of the accelerator that holds ``cache``.

    Args:
        cache: any tensor in the allocation of the device cache.
        host: the arena.
        operator: an engine's own batched copy, where the driver has none.
    """
    device = cache.device
    if device.index is None:
        device = torch.device(device.type, getattr(torch, device.type).current_device())
    library = open_libcuda(device)
    if library is not None:
        return TorchDriver(device, CudaCopier(library, device.index, operator))
    logger.warning(
        "kvcellar: copies on %s go through PyTorch one by one; this way is written but "
        "was never run on such a device",
        device,
    )
    return TorchDriver(device, _tensor_copier(cache, host))


def open_libcuda(device: torch.device) -> LibCuda | None:
    """NVIDIA's driver library, if ``device`` is NVIDIA's and the library is there."""
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    try:
        return LibCuda()
    except OSError as cause:
        logger.warning("kvcellar: %s", cause)
        return None


def _tensor_copier(cache: torch.Tensor, host: npt.NDArray[np.uint8]) -> TensorCopier:
    storage = cache.untyped_storage()
    allocation = torch.empty(0, dtype=torch.uint8, device=cache.device)
    allocation.set_(storage, 0, (storage.nbytes(),), (1,))
    module = getattr(torch, cache.device.type)
    cudart = getattr(module, "cudart", None)
    runtime = cudart() if cudart is not None else None
    return TensorCopier(allocation, host, module.stream, runtime)
