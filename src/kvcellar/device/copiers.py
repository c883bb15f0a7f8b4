"""Ways to move bytes between an accelerator and host memory, and to lock the latter."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from kvcellar.device.driver import DeviceError, Runs, Stream
from kvcellar.device.libcuda import LibCuda

BatchOperator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
"""``(sources, destinations, sizes)``: an engine's own batched copy, on the current
stream; three tensors of int64 in host memory."""


class Copier(Protocol):
    """The part of a ``Driver`` that PyTorch's streams and events leave open."""

    def attach_thread(self) -> None:
        """As ``Driver.attach_thread``."""
        ...

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """As ``Driver.copy``."""
        ...

    def register(self, address: int, num_bytes: int) -> None:
        """As ``Driver.register``."""
        ...

    def unregister(self, address: int) -> None:
        """As ``Driver.unregister``."""
        ...


class CudaCopier:
    """NVIDIA's driver library: its batch copy, else an engine's, else one by one.

    Args:
        library: the driver library.
        device_index: number of the device, as PyTorch counts them.
        operator: the engine's own batched copy, for drivers older than CUDA 12.8.
        enter_stream: ``torch.cuda.stream``, for the operator.
    """

    def __init__(
        self,
        library: LibCuda,
        device_index: int,
        operator: BatchOperator | None = None,
        enter_stream: Callable[[Stream], Any] = torch.cuda.stream,
    ) -> None:
        self._library = library
        self._device_index = device_index
        self._operator = operator
        self._enter_stream = enter_stream

    def attach_thread(self) -> None:
        """Make the device's context current; copies by address need one."""
        self._library.attach_thread(self._device_index)

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """Queue copies; unpinned ones one by one, which waits for them.

        Raises:
            DeviceError: the driver refuses; a part may be queued.
        """
        if is_pinned and self._library.has_batch:
            self._library.copy_batch(stream.cuda_stream, runs)
        elif is_pinned and self._operator is not None:
            sides = (runs.sources, runs.destinations, runs.sizes)
            with self._enter_stream(stream):
                self._operator(*(torch.from_numpy(side) for side in sides))
        else:
            self._library.copy_each(stream.cuda_stream, runs)

    def register(self, address: int, num_bytes: int) -> None:
        """Lock host memory."""
        self._library.register(address, num_bytes)

    def unregister(self, address: int) -> None:
        """Unlock host memory."""
        self._library.unregister(address)


class TensorCopier:
    """PyTorch's own copies between two tensors of bytes, for every other accelerator.

    One call per run, which costs microseconds each.

    Args:
        cache: the allocation that holds the device cache, **[num_bytes]** of uint8.
        host: the arena, **[num_bytes]**.
        enter_stream: ``torch.cuda.stream`` or its like.
        runtime: PyTorch's binding of the runtime library (``torch.cuda.cudart()``), if
            the accelerator has one: with it host memory can be locked.
    """

    def __init__(
        self,
        cache: torch.Tensor,
        host: npt.NDArray[np.uint8],
        enter_stream: Callable[[Stream], Any],
        runtime: Any = None,
    ) -> None:
        self._cache = cache
        self._host = torch.from_numpy(host)
        self._enter_stream = enter_stream
        self._runtime = runtime

    def attach_thread(self) -> None:
        """PyTorch needs nothing more."""

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """Queue copies.

        Raises:
            DeviceError: an address is in neither tensor.
        """
        del is_pinned  # PyTorch finds out by itself
        sides = (runs.destinations.tolist(), runs.sources.tolist(), runs.sizes.tolist())
        with self._enter_stream(stream):
            for to, start, size in zip(*sides, strict=True):
                source = self._bytes_at(start, size)
                self._bytes_at(to, size).copy_(source, non_blocking=True)

    def register(self, address: int, num_bytes: int) -> None:
        """Lock host memory, where PyTorch offers that.

        Raises:
            DeviceError: it does not, or the runtime refuses.
        """
        if self._runtime is None:
            raise DeviceError("pinning existing memory is not written for this device")
        self._check("register", self._runtime.cudaHostRegister(address, num_bytes, 0))

    def unregister(self, address: int) -> None:
        """Unlock host memory.

        Raises:
            DeviceError: the runtime refuses.
        """
        self._check("unregister", self._runtime.cudaHostUnregister(address))

    def _bytes_at(self, address: int, size: int) -> torch.Tensor:
        for tensor in (self._cache, self._host):
            at = address - tensor.data_ptr()
            if at >= 0 and at + size <= tensor.numel():
                return tensor[at : at + size]
        raise DeviceError(f"{size} bytes at {address} are in neither cache nor arena")

    def _check(self, what: str, code: Any) -> None:
        if int(getattr(code, "value", code)):
            raise DeviceError(f"the runtime would not {what} host memory: {code}")
