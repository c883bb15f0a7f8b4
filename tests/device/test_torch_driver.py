"""PyTorch's streams and events behind the driver, and the ways to move bytes."""

import contextlib
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from kvcellar.device import torch_driver
from kvcellar.device.copiers import CudaCopier, TensorCopier
from kvcellar.device.driver import DeviceError, Runs
from kvcellar.device.torch_driver import TorchDriver, open_driver

DEVICE = torch.device("cuda", 1)


class RecordingModule:
    """What ``torch.cuda`` offers of streams and events."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        module = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                self.enable_timing = enable_timing

            def record(self, stream: object) -> None:
                module.calls.append(("record", stream))

            def query(self) -> bool:
                return True

            def elapsed_time(self, end: object) -> float:
                return 1500.0

        class Stream:
            def __init__(self, *, device: torch.device, priority: int) -> None:
                self.made = (device, priority)

            @staticmethod
            def priority_range() -> tuple[int, int]:
                return 0, -5

            def wait_event(self, event: object) -> None:
                module.calls.append(("wait", self, event))

        self.Event, self.Stream = Event, Stream

    def set_device(self, device: torch.device) -> None:
        self.calls.append(("set_device", device))

    def current_stream(self, device: torch.device) -> str:
        return f"current stream of {device}"


class RecordingCopier:
    """Moves nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def attach_thread(self) -> None:
        self.calls.append(("attach",))

    def copy(self, stream: object, runs: Runs, *, is_pinned: bool) -> None:
        self.calls.append(("copy", stream, len(runs), is_pinned))

    def register(self, address: int, num_bytes: int) -> None:
        self.calls.append(("register", address, num_bytes))

    def unregister(self, address: int) -> None:
        self.calls.append(("unregister", address))


class RecordingLibrary:
    """The driver library's two ways to copy."""

    def __init__(self, *, has_batch: bool) -> None:
        self.has_batch = has_batch
        self.calls: list[tuple[Any, ...]] = []

    def copy_batch(self, stream: int, runs: Runs) -> None:
        self.calls.append(("batch", stream, len(runs)))

    def copy_each(self, stream: int, runs: Runs) -> None:
        self.calls.append(("each", stream, len(runs)))

    def attach_thread(self, device_index: int) -> None:
        self.calls.append(("attach", device_index))


def runs_between(
    to: np.ndarray, start: np.ndarray, *triples: tuple[int, int, int]
) -> Runs:
    table = np.array(triples, dtype=np.int64).reshape(-1, 3)
    addresses = np.array([to.ctypes.data, start.ctypes.data])
    return Runs(table[:, 0] + addresses[0], table[:, 1] + addresses[1], table[:, 2])


def some_runs() -> Runs:
    empty = np.zeros(8, dtype=np.uint8)
    return runs_between(empty, empty, (0, 4, 2), (2, 6, 2))


def test_streams_are_of_the_lowest_priority_on_the_device() -> None:
    """PyTorch's range begins with the lowest."""
    module = RecordingModule()
    stream = TorchDriver(DEVICE, RecordingCopier(), module).new_stream("store")
    assert (DEVICE, 0) == stream.made


def test_marks_are_recorded_in_and_waited_for_by_the_streams_given() -> None:
    """A mark is a timed event; waiting goes to the stream, not to the host."""
    module = RecordingModule()
    driver = TorchDriver(DEVICE, RecordingCopier(), module)
    stream = driver.new_stream("load")
    event = driver.record(driver.compute_stream())
    driver.wait(stream, event)
    assert [("record", f"current stream of {DEVICE}"), ("wait", stream, event)] == (
        module.calls
    )
    assert event.enable_timing
    assert driver.is_done(event)
    assert 1.5 == driver.seconds_between(event, event)


def test_threads_are_attached_to_pytorch_and_to_the_library() -> None:
    """Copies by address need a context of the thread's own."""
    module, copier = RecordingModule(), RecordingCopier()
    TorchDriver(DEVICE, copier, module).attach_thread()
    assert ([("set_device", DEVICE)], [("attach",)]) == (module.calls, copier.calls)


def test_empty_copies_are_not_handed_on() -> None:
    """A job without blocks makes no call."""
    copier = RecordingCopier()
    driver = TorchDriver(DEVICE, copier, RecordingModule())
    empty = np.zeros(0, dtype=np.int64)
    driver.copy("s", Runs(empty, empty, empty), is_pinned=True)
    driver.copy("s", some_runs(), is_pinned=False)
    driver.register(4096, 8192)
    driver.unregister(4096)
    assert [
        ("copy", "s", 2, False),
        ("register", 4096, 8192),
        ("unregister", 4096),
    ] == (copier.calls)


@pytest.mark.parametrize(
    ("has_batch", "has_operator", "is_pinned", "expected"),
    [
        (True, True, True, "batch"),
        (True, False, True, "batch"),
        (False, True, True, "operator"),
        (False, False, True, "each"),
        (True, True, False, "each"),
        (False, True, False, "each"),
    ],
)
def test_the_best_way_there_is_moves_the_bytes(
    has_batch: bool, has_operator: bool, is_pinned: bool, expected: str
) -> None:
    """The driver's batch, else the engine's, else one by one; unpinned always so."""
    library = RecordingLibrary(has_batch=has_batch)
    entered: list[object] = []

    @contextlib.contextmanager
    def enter(stream: object) -> Iterator[None]:
        entered.append(stream)
        yield

    def operator(*tensors: torch.Tensor) -> None:
        sources, destinations, sizes = (t.tolist() for t in tensors)
        assert [4, 4] == [s - d for s, d in zip(sources, destinations, strict=True)]
        assert [2, 2] == sizes
        library.calls.append(("operator", 77, len(sizes)))

    stream = SimpleNamespace(cuda_stream=77)
    copier = CudaCopier(library, 0, operator if has_operator else None, enter)
    copier.copy(stream, some_runs(), is_pinned=is_pinned)
    assert [(expected, 77, 2)] == library.calls
    assert ([stream] if expected == "operator" else []) == entered


def test_tensor_copies_move_the_bytes_both_ways() -> None:
    """By addresses in the cache's allocation and in the arena."""
    cache, host = torch.arange(16, dtype=torch.uint8), np.zeros(16, dtype=np.uint8)
    copier = TensorCopier(cache, host, contextlib.nullcontext)
    copier.copy(
        None, runs_between(host, cache.numpy(), (0, 8, 4), (4, 0, 2)), is_pinned=True
    )
    assert [8, 9, 10, 11, 0, 1, 0, 0] == host[:8].tolist()
    copier.copy(None, runs_between(cache.numpy(), host, (15, 3, 1)), is_pinned=False)
    assert 11 == cache[15]


def test_tensor_copies_refuse_foreign_addresses() -> None:
    """One byte beyond the arena is an error, not a crash."""
    cache, host = torch.zeros(16, dtype=torch.uint8), np.zeros(16, dtype=np.uint8)
    copier = TensorCopier(cache, host, contextlib.nullcontext)
    with pytest.raises(DeviceError, match="in neither cache nor arena"):
        copier.copy(None, runs_between(host, cache.numpy(), (13, 0, 4)), is_pinned=True)


def test_tensor_copies_pin_through_the_runtime_if_there_is_one() -> None:
    """Without one pinning is an error with its reason, and so is a refusal."""
    cache, host = torch.zeros(1, dtype=torch.uint8), np.zeros(1, dtype=np.uint8)
    with pytest.raises(DeviceError, match="not written for this device"):
        TensorCopier(cache, host, contextlib.nullcontext).register(4096, 4096)
    answers = iter([0, 712, 0])
    runtime = SimpleNamespace(
        cudaHostRegister=lambda *_: SimpleNamespace(value=next(answers)),
        cudaHostUnregister=lambda _: next(answers),
    )
    copier = TensorCopier(cache, host, contextlib.nullcontext, runtime)
    copier.register(4096, 4096)
    with pytest.raises(DeviceError, match="would not register"):
        copier.register(4096, 4096)
    copier.unregister(4096)


def test_an_accelerator_without_nvidias_library_copies_through_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says that this way was never run; the bytes are right.

    The processor stands in for such an accelerator: PyTorch copies alike on all.
    """
    module = RecordingModule()
    module.current_device = lambda: 0
    module.stream = lambda _: contextlib.nullcontext()
    monkeypatch.setattr(torch, "cpu", module)
    whole, host = torch.arange(64, dtype=torch.int32), np.zeros(256, dtype=np.uint8)
    with caplog.at_level(logging.WARNING, "kvcellar"):
        driver = open_driver(whole[8:], host)
    assert "never run on such a device" in caplog.text
    runs = runs_between(host, whole.numpy(), (0, 0, 256))
    driver.copy(None, runs, is_pinned=True)
    assert list(range(64)) == host.view(np.int32).tolist()


def test_nvidias_library_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ``cuda`` devices of a PyTorch built for NVIDIA."""
    library = object()
    monkeypatch.setattr(torch_driver, "LibCuda", lambda: library)
    assert library is torch_driver.open_libcuda(DEVICE)
    assert None is torch_driver.open_libcuda(torch.device("xpu", 0))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert None is torch_driver.open_libcuda(DEVICE)


def test_a_machine_without_the_library_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning with the loader's words, and no failure."""

    def missing() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(torch_driver, "LibCuda", missing)
    with caplog.at_level(logging.WARNING, "kvcellar"):
        assert None is torch_driver.open_libcuda(DEVICE)
    assert "libcuda.so.1: cannot open" in caplog.text
