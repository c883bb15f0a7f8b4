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
