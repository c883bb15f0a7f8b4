"""What the CUDA device asks of an accelerator: streams, events, copies, pinned memory.

    stream   a queue of work; work of one stream runs in order, streams run side by side
    event    a mark in a stream; another stream can be made to wait for it, the host can
             ask whether it has been passed

Two implementations: ``torch_driver.TorchDriver`` for real ones, and the recording
``testing.fake_driver.FakeDriver``. There is deliberately no call that waits for a
stream or for the whole device: that would hold the model up.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kvcellar.errors import CellarError

Addresses = npt.NDArray[np.int64]

Stream = Any
Event = Any


class DeviceError(CellarError):
    """The accelerator or its driver refused a call."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Copies by address, in no particular order.

    Attributes:
        destinations: **[n]** first byte written.
        sources: **[n]** first byte read.
        sizes: **[n]** bytes; none is 0.
    """

    destinations: Addresses
    sources: Addresses
    sizes: Addresses

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, chosen: npt.NDArray[Any]) -> "Runs":
        """Those at the chosen places."""
        return Runs(self.destinations[chosen], self.sources[chosen], self.sizes[chosen])


class Driver(Protocol):
    """One accelerator. All methods may be called from any attached thread.

    Every method may raise ``DeviceError``, or whatever the accelerator's library
    raises when the device is lost.
    """

    def attach_thread(self) -> None:
        """Make the calling thread work on this accelerator; once, before all else."""
        ...

    def compute_stream(self) -> Stream:
        """The stream that the calling thread's model work goes to now."""
        ...

    def new_stream(self, name: str) -> Stream:
        """A stream of the lowest priority that waits for no other by itself."""
        ...

    def record(self, stream: Stream) -> Event:
        """Put a new mark behind the work queued in ``stream`` so far."""
        ...

    def wait(self, stream: Stream, event: Event) -> None:
        """Let work queued in ``stream`` from now on start only after ``event``."""
        ...

    def is_done(self, event: Event) -> bool:
        """Whether the work before the mark has ended; never waits."""
        ...

    def seconds_between(self, begin: Event, end: Event) -> float:
        """Time on the device from one passed mark to another."""
        ...

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """Queue copies between device and host memory, and return.

        Args:
            is_pinned: every run lies within one registered range of host memory. If
                not, the call may block until the copies have ended; either way host
                memory that is not registered is no longer used when it returns.
        """
        ...

    def register(self, address: int, num_bytes: int) -> None:
        """Lock a range of host memory, whole pages, for copies at full speed."""
        ...

    def unregister(self, address: int) -> None:
        """Undo ``register`` of the range that starts at ``address``."""
        ...
