"""The few functions of NVIDIA's driver library that copies and pinning need.

Called through ``ctypes``, which lets other Python threads run meanwhile, and not
through the runtime library or a Python package: the driver library is on every machine
with a GPU, an error of ours does not show up as PyTorch's next error, and nothing has
to be installed.

Source: CUDA driver API reference, sections Memory Management, Driver Entry Point
Access, Primary Context Management, Device Management; signatures as of CUDA 12.8.
"""

import ctypes
from typing import Any

import numpy as np

from kvcellar.device.driver import Addresses, DeviceError, Runs

MAX_BATCH_COPIES = 8192
"""Copies handed over in one call; more only make the call longer."""

_BATCH_VERSION = 12080  # whose signature is used below; later ones differ
_SOURCE_IN_STREAM_ORDER = 1  # CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
_PCI_ADDRESS_BYTES = 32


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint), ("id", ctypes.c_int))


class _CopyAttributes(ctypes.Structure):
    """``CUmemcpyAttributes``; the hints are for managed memory only."""

    _fields_ = (
        ("source_access_order", ctypes.c_uint),
        ("source_hint", _Location),
        ("destination_hint", _Location),
        ("flags", ctypes.c_uint),
    )


_BATCH_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_uint,
    ctypes.c_void_p,  # destinations
    ctypes.c_void_p,  # sources
    ctypes.c_void_p,  # sizes
    ctypes.c_size_t,  # number of copies
    ctypes.c_void_p,  # attributes
    ctypes.c_void_p,  # first copy that each of them is for
    ctypes.c_size_t,  # number of attributes
    ctypes.c_void_p,  # out: which copy was at fault
    ctypes.c_void_p,  # stream
)


class LibCuda:
    """Functions by address and number; each raises what the driver answers.

    Args:
        library: stands in for the driver library in tests.

    Raises:
        OSError: there is no such library here.
        DeviceError: the driver cannot be initialised.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library or ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", ctypes.c_uint(0))
        self._batch = self._find_batch()
        # A store's source is written by earlier work, a load's by earlier stores: both
        # must be read in the order of the stream, not ahead of it.
        self._attributes = _CopyAttributes(source_access_order=_SOURCE_IN_STREAM_ORDER)
        self._attribute_places = ctypes.c_size_t(0)

    @property
    def has_batch(self) -> bool:
        """Whether the driver can take many copies in one call; from CUDA 12.8 on."""
        return self._batch is not None

    def attach_thread(self, device_index: int) -> None:
        """Make PyTorch's context of a device current in the calling thread."""
        context = ctypes.c_void_p()
        device = self._device(device_index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def pci_address(self, device_index: int) -> str:
        """Where a device sits, such as ``0000:3b:00.0``, in lower case."""
        text = ctypes.create_string_buffer(_PCI_ADDRESS_BYTES)
        size = ctypes.c_int(_PCI_ADDRESS_BYTES)
        self._call("cuDeviceGetPCIBusId", text, size, self._device(device_index))
        return text.value.decode("ascii").lower()

    def copy_batch(self, stream: int, runs: Runs) -> None:
        """Queue copies, many in one call; host memory must be registered.

        Raises:
            DeviceError: the driver refuses; a part may be queued.
        """
        table = np.stack((runs.destinations, runs.sources, runs.sizes))
        for first in range(0, len(runs), MAX_BATCH_COPIES):
            self._copy_part(stream, *table[:, first : first + MAX_BATCH_COPIES])

    def copy_each(self, stream: int, runs: Runs) -> None:
        """Queue copies one by one, of any memory; blocks where it is not registered.

        Raises:
            DeviceError: the driver refuses; a part may be queued.
        """
        handle = ctypes.c_void_p(stream)
        sides = (runs.destinations.tolist(), runs.sources.tolist(), runs.sizes.tolist())
        for to, start, size in zip(*sides, strict=True):
            self._call(
                "cuMemcpyAsync",
                ctypes.c_uint64(to),
                ctypes.c_uint64(start),
                ctypes.c_size_t(size),
                handle,
            )

    def register(self, address: int, num_bytes: int) -> None:
        """Lock host memory, whole pages.

        Raises:
            DeviceError: the driver refuses.
        """
        self._call(
            "cuMemHostRegister_v2",
            ctypes.c_void_p(address),
            ctypes.c_size_t(num_bytes),
            ctypes.c_uint(0),
        )

    def unregister(self, address: int) -> None:
        """Undo ``register``.

        Raises:
            DeviceError: nothing is registered there, or the device is lost.
        """
        self._call("cuMemHostUnregister", ctypes.c_void_p(address))

    def _copy_part(
        self, stream: int, to: Addresses, start: Addresses, sizes: Addresses
    ) -> None:
        assert self._batch is not None  # the caller asks has_batch first
        at_fault = ctypes.c_size_t(0)
        code = self._batch(
            to.ctypes.data,
            start.ctypes.data,
            sizes.ctypes.data,
            len(sizes),
            ctypes.addressof(self._attributes),
            ctypes.addressof(self._attribute_places),
            1,
            ctypes.addressof(at_fault),
            stream,
        )
        if code:
            raise self._error("cuMemcpyBatchAsync", code)

    def _find_batch(self) -> Any:
        """The batch copy of the version whose signature we know; None if too old.

        The exported name belongs to another signature in newer libraries.
        """
        address, status = ctypes.c_void_p(), ctypes.c_int(0)
        try:
            code = self._library.cuGetProcAddress_v2(
                b"cuMemcpyBatchAsync",
                ctypes.byref(address),
                ctypes.c_int(_BATCH_VERSION),
                ctypes.c_uint64(0),
                ctypes.byref(status),
            )
        except AttributeError:  # older than the look-up itself
            return None
        if code or not address.value:
            return None
        return _BATCH_FUNCTION(address.value)

    def _device(self, index: int) -> ctypes.c_int:
        device = ctypes.c_int(0)
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        return device

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise self._error(name, code)

    def _error(self, name: str, code: int) -> DeviceError:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_uint(code), ctypes.byref(text))
        reason = (text.value or b"no text").decode("ascii", "replace")
        return DeviceError(f"{name} answered {code}: {reason}")
