"""The host tier's bytes: one anonymous mapping per rank, or one for ranks that share.

Nothing here has a name, in ``/dev/shm`` or elsewhere: however the process ends, even by
``kill -9``, the kernel takes the memory back and no file is left.

Pages are handed out by the kernel when they are first written, so starting is instant
and an idle cache costs nothing. The price: the check at the start reserves nothing. If
other processes later take what was free then, the machine runs out while the cache
fills up. So the check counts the arena as if it were full already, for all ranks of
this machine together, and not by what the kernel is willing to promise.
"""

import logging
import mmap
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from kvcellar.errors import ClosedError, ConfigError
from kvcellar.layout.host import HostGeometry
from kvcellar.layout.units import format_bytes
from kvcellar.tiers.machine import MachineMemory, check_fits, read_machine
from kvcellar.tiers.shared_memory import fix_size

logger = logging.getLogger(__name__)


class HostMemory:
    """Maps exactly ``geometry.arena_bytes`` and hands out the address.

    Whoever copies by address must have stopped before ``close``. Not thread-safe;
    made and closed by the worker's main thread.

    Args:
        geometry: the cut of this rank's arena.
        machine_bytes: that all ranks on this machine map together; None if this is
            the only one. What ranks share counts once.
        machine: what the machine has; None reads it.
        file: a memory file to map, from ``shared_memory``; None for memory of this
            process alone. It may be closed afterwards.

    Attributes:
        num_bytes: bytes of the mapping.

    Raises:
        ConfigError: the machine does not have the memory, or refuses to map it.
    """

    def __init__(
        self,
        geometry: HostGeometry,
        *,
        machine_bytes: int | None = None,
        machine: MachineMemory | None = None,
        file: int | None = None,
    ) -> None:
        self.num_bytes = geometry.arena_bytes
        check_fits(self.num_bytes, machine or read_machine(), machine_bytes)
        self._mapping: mmap.mmap | None = _map(self.num_bytes, file)
        self._array: npt.NDArray[np.uint8] | None = np.frombuffer(
            self._mapping, dtype=np.uint8
        )

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes, writable, **[num_bytes]**.

        Raises:
            ClosedError: after ``close``.
        """
        if self._array is None:
            raise ClosedError("host memory was used after it had been closed")
        return self._array

    @property
    def address(self) -> int:
        """Address of the first byte; a page boundary.

        Raises:
            ClosedError: after ``close``.
        """
        return int(self.array.ctypes.data)

    def close(self) -> None:
        """Give the memory back; a second call does nothing.

        While views of ``array`` are alive elsewhere the mapping lives on, and goes
        with the last of them.
        """
        self._array = None
        mapping, self._mapping = self._mapping, None
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            logger.debug("host memory is still viewed; it goes with the last view")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _map(num_bytes: int, file: int | None) -> mmap.mmap:
    if file is not None:
        fix_size(file, num_bytes)
    kind = (
        mmap.MAP_SHARED if file is not None else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    try:
        mapping = mmap.mmap(-1 if file is None else file, num_bytes, flags=kind)
    except (OSError, OverflowError, ValueError) as cause:
        raise ConfigError(
            f"the kernel refused to map {num_bytes} bytes ({format_bytes(num_bytes)}) "
            f"of host memory ({cause}); lower host_memory, or raise the limit that "
            "applies (ulimit -v, vm.overcommit_memory)"
        ) from cause
    _advise(mapping)
    return mapping


def _advise(mapping: mmap.mmap) -> None:
    """Ask for huge pages: filling the arena is then two to three times as fast."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return
    try:
        mapping.madvise(advice)
    except OSError as cause:  # a kernel built without them: slower, nothing else
        logger.debug("no huge pages for host memory: %s", cause)
