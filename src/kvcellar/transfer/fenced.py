"""A job on its way to a thread, and the words for jobs that end before they begin."""

from dataclasses import dataclass

from kvcellar.device.device import Device
from kvcellar.transfer.jobs import CopyJob

IN_DOUBT = "an earlier move inside host memory failed, so its bytes are in doubt"
DROPPED = "the transfer engine was closed before the copy began"


@dataclass(frozen=True, slots=True)
class FencedJob:
    """A job and the mark it has to come after.

    Attributes:
        fence_error: why there is no fence, which dooms the job; else None.
    """

    job: CopyJob
    fence: object
    fence_error: str | None = None


def fenced(job: CopyJob, device: Device) -> FencedJob:
    """Fence a job now, on the calling thread; a failure travels with it."""
    try:
        return FencedJob(job, device.fence())
    except Exception as cause:  # noqa: BLE001 - it travels as a result instead
        return FencedJob(job, None, text_of(cause))


def text_of(cause: Exception) -> str:
    """An exception as a job's error."""
    return f"{type(cause).__name__}: {cause}"
