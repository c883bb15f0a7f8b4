"""The binding of the driver library, against a stand-in that takes the same bytes."""

import ctypes
from typing import Any

import numpy as np
import pytest

from kvcellar.device.driver import DeviceError, Runs
from kvcellar.device.libcuda import _BATCH_FUNCTION, MAX_BATCH_COPIES, LibCuda

INVALID_VALUE = 1
STREAM = 0x7F00


class FakeLibrary:
    """Moves the bytes at once and writes down what it was given."""

    def __init__(self, *, has_batch: bool = True) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing: dict[str, int] = {}
        self.attributes: list[bytes] = []
        self._has_batch = has_batch
        self._batch = _BATCH_FUNCTION(self._copy_batch)  # kept alive

    def cuGetProcAddress_v2(  # noqa: N802 - the library's own name
        self, name: bytes, target: Any, version: Any, flags: Any, status: Any
    ) -> int:
        self.calls.append(("cuGetProcAddress_v2", name, version.value, flags.value))
        if self._has_batch:
            target._obj.value = ctypes.cast(self._batch, ctypes.c_void_p).value
        return 0

    def cuGetErrorString(self, code: Any, target: Any) -> int:  # noqa: N802
        target._obj.value = b"invalid argument"
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, *(getattr(a, "value", a) for a in arguments)))
            if name == "cuDeviceGetPCIBusId":
                arguments[0].value = b"0000:3B:00.0"
            elif name == "cuDevicePrimaryCtxRetain":
                arguments[0]._obj.value = 4711
            elif name == "cuDeviceGet":
                arguments[0]._obj.value = 20 + arguments[1].value
            elif name == "cuMemcpyAsync" and name not in self.failing:
                ctypes.memmove(*(a.value for a in arguments[:3]))
            return self.failing.get(name, 0)

        return call

    def _copy_batch(  # noqa: PLR0913, PLR0917 - the library's own signature
        self,
        to: int,
        start: int,
        sizes: int,
        count: int,
        attributes: int,
        places: int,
        num_attributes: int,
        at_fault: int,
        stream: int,
    ) -> int:
        columns = [
            np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(a)).tolist()
            for a in (to, start, sizes)
        ]
        place = ctypes.c_size_t.from_address(places).value
        self.calls.append(("batch", count, num_attributes, place, stream))
        self.attributes.append(ctypes.string_at(attributes, 24))
        if "batch" in self.failing:
            return self.failing["batch"]
        for one in zip(*columns, strict=True):
            ctypes.memmove(*one)
        return 0

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


def scattered(count: int) -> tuple[np.ndarray, np.ndarray, Runs]:
    """Copies of 3 bytes each that turn an array around."""
    source = np.arange(3 * count, dtype=np.uint32).astype(np.uint8)
    target = np.zeros_like(source)
    starts = 3 * np.arange(count, dtype=np.int64)
    runs = Runs(
        target.ctypes.data + starts[::-1],
        source.ctypes.data + starts,
        np.full(count, 3, dtype=np.int64),
    )
    return source, target, runs


def turned(source: np.ndarray) -> bytes:
    return source.reshape(-1, 3)[::-1].tobytes()


def test_the_batch_of_the_known_signature_is_looked_up() -> None:
    """By name and version, not by the exported name, whose signature may differ."""
    library = FakeLibrary()
    assert LibCuda(library).has_batch
    assert [(b"cuMemcpyBatchAsync", 12080, 0)] == library.named("cuGetProcAddress_v2")
    assert [(0,)] == library.named("cuInit")


def test_batch_moves_every_byte_in_parts() -> None:
    """Two parts, each with one set of attributes for all its copies."""
    library = FakeLibrary()
    source, target, runs = scattered(MAX_BATCH_COPIES + 5)
    LibCuda(library).copy_batch(STREAM, runs)
    assert turned(source) == target.tobytes()
    assert [(MAX_BATCH_COPIES, 1, 0, STREAM), (5, 1, 0, STREAM)] == library.named(
        "batch"
    )


def test_sources_are_read_in_stream_order() -> None:
    """Not ahead of it: what a copy reads may be written by the work before it.

    The attributes are six integers: access order, two hints of two, and flags.
    """
    library = FakeLibrary()
    *_, runs = scattered(1)
    LibCuda(library).copy_batch(STREAM, runs)
    assert [1, 0, 0, 0, 0, 0] == np.frombuffer(library.attributes[0], np.int32).tolist()


def test_copies_one_by_one_move_every_byte() -> None:
    """For memory that is not registered and for drivers without the batch."""
    library = FakeLibrary(has_batch=False)
    cuda = LibCuda(library)
    source, target, runs = scattered(4)
    assert not cuda.has_batch
    cuda.copy_each(STREAM, runs)
    assert turned(source) == target.tobytes()
    assert [STREAM] * 4 == [call[3] for call in library.named("cuMemcpyAsync")]


def test_a_driver_without_the_look_up_has_no_batch() -> None:
    """A library older than the look-up itself is used all the same."""

    class Old(FakeLibrary):
        @property
        def cuGetProcAddress_v2(self) -> Any:  # noqa: N802
            raise AttributeError("no such symbol")

    assert not LibCuda(Old()).has_batch


def test_attaching_makes_the_devices_context_current() -> None:
    """The primary context, which PyTorch uses, of the device by its index."""
    library = FakeLibrary()
    LibCuda(library).attach_thread(3)
    assert 23 == library.named("cuDevicePrimaryCtxRetain")[0][1]
    assert [(4711,)] == library.named("cuCtxSetCurrent")


def test_pci_address_is_in_the_form_of_sysfs() -> None:
    """Lower case, as the kernel names the device's folder."""
    assert "0000:3b:00.0" == LibCuda(FakeLibrary()).pci_address(0)


def test_memory_is_registered_by_address_and_size() -> None:
    """With the default flags, and given back by address."""
    library = FakeLibrary()
    cuda = LibCuda(library)
    cuda.register(4096, 8192)
    cuda.unregister(4096)
    assert [(4096, 8192, 0)] == library.named("cuMemHostRegister_v2")
    assert [(4096,)] == library.named("cuMemHostUnregister")


@pytest.mark.parametrize("name", ["cuMemHostRegister_v2", "cuMemcpyAsync", "batch"])
def test_refusals_are_errors_with_the_drivers_words(name: str) -> None:
    """The function, the number and the text."""
    library = FakeLibrary()
    cuda = LibCuda(library)
    library.failing[name] = INVALID_VALUE
    *_, runs = scattered(2)
    calls = {
        "cuMemHostRegister_v2": lambda: cuda.register(4096, 4096),
        "cuMemcpyAsync": lambda: cuda.copy_each(STREAM, runs),
        "batch": lambda: cuda.copy_batch(STREAM, runs),
    }
    with pytest.raises(DeviceError, match=r"cuMem\w+ answered 1: invalid argument"):
        calls[name]()
