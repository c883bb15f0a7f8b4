"""An accelerator that is as late, or as early, as its rules allow. No GPU needed.

Streams are queues of operations on ordinary memory. Nothing runs because it was
queued: an operation runs when the streams' *haste* lets it, or when somebody asks for a
mark often enough that the device must make progress. A copy moves its bytes when it
runs, not when it was queued, and the copies of one call run in any order. So if a wait
is left out, some haste gives wrong bytes:

    eager streams   run as far as stream order and waits allow, at every call
    other streams   run only what an answer to ``is_done`` forces, and what that
                    waits for

Every call is recorded. What a real driver refuses is refused here too: threads that
are not attached, copies outside the memory it knows, runs across two registered ranges.
"""

import ctypes
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcellar.device.driver import DeviceError, Runs

COMPUTE = "compute"
RANDOM = "random"

_SPEEDS = (0.0, 0.3, 0.9)  # chance that a stream runs one operation more
_CHANCE_OF_NEW_SPEEDS = 0.03


@dataclass(eq=False)
class FakeEvent:
    """A mark in a stream.

    Attributes:
        stream: where it was put.
        is_passed: whether the work before it has run.
        tick: when it was passed, in operations of the whole device.
    """

    stream: "FakeStream"
    is_passed: bool = False
    tick: int = 0
    num_asked: int = 0


class _Operation(NamedTuple):
    run: Callable[[], None]
    waits_for: FakeEvent | None = None
    marks: FakeEvent | None = None


@dataclass(eq=False)
class FakeStream:
    """A queue of operations that have not run yet."""

    name: str
    operations: deque[_Operation] = field(default_factory=deque)


class Call(NamedTuple):
    """One recorded call: its name, the stream's name and the bytes of a copy."""

    name: str
    stream: str = ""
    num_bytes: int = 0


class _Range(NamedTuple):
    begin: int
    end: int

    def holds(self, address: int, num_bytes: int) -> bool:
        return self.begin <= address and address + num_bytes <= self.end

    def meets(self, address: int, num_bytes: int) -> bool:
        return self.begin < address + num_bytes and address < self.end


class FakeDriver:
    """Records calls and runs them late or early; see the module.

    Args:
        eager: names of the streams that run as early as they may; ``RANDOM`` lets a
            seeded coin decide at every step.
        seed: of the coin, and of the order of the copies of one call.
        patience: how often a mark is denied before the device must make progress.

    Attributes:
        calls: everything asked of the driver, in order.
        failures: how often a call of that name still succeeds; the next one fails.
    """

    def __init__(
        self,
        eager: frozenset[str] = frozenset(),
        *,
        seed: int = 0,
        patience: int = 2,
    ) -> None:
        self.calls: list[Call] = []
        self.failures: dict[str, int] = {}
        self._eager = eager
        self._rng = random.Random(seed)
        self._speeds: list[float] = []
        self._patience = patience
        self._lock = threading.RLock()
        self._thread = threading.local()  # numbers of threads are used again
        self._thread.is_attached = True
        self._compute = FakeStream(COMPUTE)
        self._streams = [self._compute]
        self._device_ranges: list[_Range] = []
        self._registered: dict[int, _Range] = {}
        self._num_operations = 0

    # -- what the checks use -------------------------------------------------------

    def add_device_memory(self, address: int, num_bytes: int) -> None:
        """Let a range of ordinary memory be the accelerator's own."""
        self._device_ranges.append(_Range(address, address + num_bytes))

    def launch(self, kernel: Callable[[], None]) -> None:
        """Queue model work; it reads and writes memory when it runs."""
        with self._lock:
            self._compute.operations.append(_Operation(kernel))
            self._make_progress()

    def finish_all(self) -> None:
        """Run everything, as waiting for the whole device would."""
        with self._lock:
            for stream in self._streams:
                self._force(stream, None)

    def finish_compute(self) -> None:
        """Run all model work, and what it waits for, as reading an answer would."""
        with self._lock:
            self._force(self._compute, None)

    @property
    def num_registered_bytes(self) -> int:
        """Bytes of host memory that are registered now."""
        return sum(end - begin for begin, end in self._registered.values())

    # -- the driver ----------------------------------------------------------------

    def attach_thread(self) -> None:
        """Allow calls from this thread."""
        with self._lock:
            self._record_call("attach_thread")
            self._thread.is_attached = True

    def compute_stream(self) -> FakeStream:
        """The one stream that ``launch`` uses."""
        return self._compute

    def new_stream(self, name: str) -> FakeStream:
        """Another stream."""
        with self._lock:
            self._record_call("new_stream", name)
            stream = FakeStream(name)
            self._streams.append(stream)
            return stream

    def record(self, stream: FakeStream) -> FakeEvent:
        """Queue a mark."""
        with self._lock:
            self._record_call("record", stream.name)
            event = FakeEvent(stream)
            stream.operations.append(_Operation(_nothing, marks=event))
            self._make_progress()
            return event

    def wait(self, stream: FakeStream, event: FakeEvent) -> None:
        """Queue a wait for a mark."""
        with self._lock:
            self._record_call("wait", stream.name)
            stream.operations.append(_Operation(_nothing, waits_for=event))
            self._make_progress()

    def is_done(self, event: FakeEvent) -> bool:
        """Whether the mark was passed; asked often enough, the device hurries."""
        with self._lock:
            self._record_call("is_done", event.stream.name)
            self._make_progress()
            event.num_asked += 1
            if event.num_asked > self._patience:
                self._force(event.stream, event)
            return event.is_passed

    def seconds_between(self, begin: FakeEvent, end: FakeEvent) -> float:
        """Microseconds stand for operations."""
        return (end.tick - begin.tick) * 1e-6

    def copy(self, stream: FakeStream, runs: Runs, *, is_pinned: bool) -> None:
        """Queue copies; unpinned ones run before this returns."""
        with self._lock:
            num_bytes = int(runs.sizes.sum())
            name = "copy" if is_pinned else "copy unpinned"
            self._record_call(name, stream.name, num_bytes)
            moves = list(zip(*_lists(runs), strict=True))
            for to, start, size in moves:
                self._check_ends(to, start, size, is_pinned=is_pinned)
            self._rng.shuffle(moves)
            for to, start, size in moves:
                stream.operations.append(_Operation(_copying(to, start, size)))
            if not is_pinned:
                self._force(stream, None)
            self._make_progress()

    def register(self, address: int, num_bytes: int) -> None:
        """Remember a range of whole pages; none twice."""
        with self._lock:
            self._record_call("register", num_bytes=num_bytes)
            if address % 4096 or num_bytes % 4096:
                raise DeviceError(f"{num_bytes} bytes at {address} are not whole pages")
            if any(r.meets(address, num_bytes) for r in self._registered.values()):
                raise DeviceError(f"part of the range at {address} is registered")
            self._registered[address] = _Range(address, address + num_bytes)

    def unregister(self, address: int) -> None:
        """Forget a range; no copy to or from it may be waiting."""
        with self._lock:
            self._record_call("unregister")
            if any(stream.operations for stream in self._streams[1:]):
                raise DeviceError(
                    "a copy still needs memory that is to be unregistered"
                )
            if self._registered.pop(address, None) is None:
                raise DeviceError(f"no range at {address} is registered")

    # -- inside --------------------------------------------------------------------

    def _record_call(self, name: str, stream: str = "", num_bytes: int = 0) -> None:
        self.calls.append(Call(name, stream, num_bytes))
        is_attached = getattr(self._thread, "is_attached", False)
        if name != "attach_thread" and not is_attached:
            raise DeviceError(f"{name} was called from a thread that is not attached")
        if name in self.failures:
            self.failures[name] -= 1
            if self.failures[name] < 0:
                del self.failures[name]
                raise DeviceError(f"planted fault in {name}")

    def _check_ends(self, to: int, start: int, size: int, *, is_pinned: bool) -> None:
        is_device = [
            any(r.holds(a, size) for r in self._device_ranges) for a in (to, start)
        ]
        if sum(is_device) != 1:
            raise DeviceError(f"a copy from {start} to {to} has not one device side")
        host = start if is_device[0] else to
        met = [r for r in self._registered.values() if r.meets(host, size)]
        is_whole = len(met) == 1 and met[0].holds(host, size)
        if not is_whole and (is_pinned or met):
            raise DeviceError(f"{size} bytes at {host} lie in {len(met)} ranges")

    def _is_device(self, address: int, num_bytes: int) -> bool:
        return any(r.holds(address, num_bytes) for r in self._device_ranges)

    def _make_progress(self) -> None:
        """Run what the haste lets run now."""
        if RANDOM in self._eager:
            self._make_random_progress()
            return
        is_changed = True
        while is_changed:
            eager = [s for s in self._streams if s.name in self._eager]
            is_changed = sum(map(self._step, eager)) > 0

    def _make_random_progress(self) -> None:
        """Each stream at a speed of its own, which changes from time to time."""
        if self._rng.random() < _CHANCE_OF_NEW_SPEEDS or not self._speeds:
            self._speeds = [self._rng.choice(_SPEEDS) for _ in self._streams]
        for stream, speed in zip(self._streams, self._speeds, strict=False):
            while self._rng.random() < speed and self._step(stream):
                pass

    def _step(self, stream: FakeStream) -> bool:
        """Run the first operation of a stream if it waits for nothing."""
        if not stream.operations:
            return False
        operation = stream.operations[0]
        if operation.waits_for is not None and not operation.waits_for.is_passed:
            return False
        stream.operations.popleft()
        operation.run()
        self._num_operations += 1
        if operation.marks is not None:
            operation.marks.is_passed = True
            operation.marks.tick = self._num_operations
        return True

    def _force(self, stream: FakeStream, until: FakeEvent | None) -> None:
        """Run a stream up to a mark or to its end, and only what that waits for."""
        while stream.operations and not (until is not None and until.is_passed):
            awaited = stream.operations[0].waits_for
            if awaited is not None and not awaited.is_passed:
                self._force(awaited.stream, awaited)
            self._step(stream)


def _nothing() -> None:
    pass


def _copying(to: int, start: int, size: int) -> Callable[[], None]:
    def run() -> None:
        ctypes.memmove(to, start, size)

    return run


def _lists(runs: Runs) -> tuple[list[int], list[int], list[int]]:
    return runs.destinations.tolist(), runs.sources.tolist(), runs.sizes.tolist()
