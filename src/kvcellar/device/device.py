"""What the transfer thread asks of a device: copy one job's bytes, now."""

from typing import Protocol

from kvcellar.transfer.jobs import CopyJob


class Device(Protocol):
    """Copies blocks between one rank's device cache and its host cells.

    A fence orders a copy after the work that the model had queued when the job was
    submitted: a store reads only what that work wrote, a load writes only where that
    work is done reading.
    """

    def fence(self) -> object:
        """Mark the work queued so far. Called on the model's thread, at submit."""
        ...

    def copy(self, job: CopyJob, fence: object) -> int:
        """Carry out ``job`` after ``fence`` and return the bytes copied.

        Called on the transfer thread, one job at a time. Blocks until the bytes are
        there, and lets other Python threads run meanwhile. Nothing is copied if any
        block of the job is out of range.

        Raises:
            CellarError: the job asks for what this device does not have.
        """
        ...

    def close(self) -> None:
        """Forget the memory. No copy may be running; a second call does nothing."""
        ...


class Copying(Protocol):
    """A job whose copies are queued on the device.

    Attributes:
        num_bytes: bytes of the job.
        error: what went wrong while queuing; then a part may be on its way all the
            same.
    """

    num_bytes: int
    error: Exception | None

    def is_done(self) -> bool:
        """Whether everything queued for the job has ended; never waits.

        Raises:
            Exception: the device cannot tell any more.
        """
        ...

    def seconds(self) -> float:
        """Time the copies took on the device; after ``is_done``."""
        ...


class StreamDevice(Device, Protocol):
    """A device that carries out jobs by itself, several at a time.

    What can be observed is the order in which jobs were started: a job that shares a
    block or cell with an earlier one comes after it.
    """

    def attach_thread(self) -> None:
        """Prepare the calling thread for ``start``; once."""
        ...

    def start(self, job: CopyJob, fence: object) -> Copying:
        """Queue ``job`` behind ``fence`` and return. One thread calls this.

        Nothing is queued if this raises. A move is over when this returns.

        Raises:
            CellarError: the job asks for what this device does not have.
        """
        ...
