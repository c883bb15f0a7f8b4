"""Host memory as the accelerator sees it: pinned piece by piece, in the background.

Copies to memory that the driver has not locked ("pinned") go through its own small
buffers: right, but slow, and the caller waits. Locking takes its time, too long to hold
a start-up up. So every piece is usable at once, unpinned, and gets fast on its own:

    piece   [ pinned | pinned | being pinned | unpinned | unpinned ]
    copies    async    async    ......... wait for the copy .......

The thread first has the kernel provide a piece's pages, near the accelerator, and only
then asks the driver to lock them, because other threads' calls wait for the driver
meanwhile. Locking a piece and an unpinned copy exclude each other, so that memory does
not change its kind under a copy. If locking fails, the rest stays unpinned.

Nothing has a name: the arena is an anonymous mapping, so that nothing outlives a
killed process.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kvcellar.device.driver import Addresses, Driver, Runs, Stream
from kvcellar.device.runs import cut_runs
from kvcellar.layout.units import format_bytes

logger = logging.getLogger(__name__)

Prepare = Callable[[int, int], None]
"""``(address, num_bytes)``: have the kernel provide these pages."""


class PinnedMemory:
    """Copies to and from the arena, whichever pieces are pinned by now.

    Args:
        borders: from ``cut_pieces``; the first is the arena's address.

    Attributes:
        address: of the arena.
    """

    def __init__(self, borders: Addresses) -> None:
        self.address = int(borders[0])
        self._borders = borders
        self._is_pinned: npt.NDArray[np.bool_] = np.zeros(len(borders) - 1, dtype=bool)
        self._are_all_pinned = False
        self._changing = threading.Lock()

    @property
    def num_pieces(self) -> int:
        """Pieces that the arena is cut into."""
        return len(self._is_pinned)

    @property
    def pinned_bytes(self) -> int:
        """Bytes that are pinned by now."""
        return int(np.diff(self._borders)[self._is_pinned].sum())

    def copy(self, driver: Driver, stream: Stream, runs: Runs, host: Addresses) -> None:
        """Queue copies; waits for those whose piece is not pinned yet.

        Args:
            host: the side of each run that lies in the arena.
        """
        runs, host = cut_runs(runs, host, self._borders[1:-1])
        if self._are_all_pinned:
            driver.copy(stream, runs, is_pinned=True)
            return
        pieces = np.searchsorted(self._borders, host, side="right") - 1
        is_pinned = self._is_pinned[pieces]
        if is_pinned.any():
            driver.copy(stream, runs.take(is_pinned), is_pinned=True)
        if not is_pinned.all():
            with self._changing:
                driver.copy(stream, runs.take(~is_pinned), is_pinned=False)

    def pin(self, driver: Driver, piece: int) -> None:
        """Lock one piece.

        Raises:
            DeviceError: the driver refuses.
        """
        with self._changing:
            driver.register(*self.place_of(piece))
        self._is_pinned[piece] = True
        self._are_all_pinned = bool(self._is_pinned.all())

    def unpin_all(self, driver: Driver) -> None:
        """Unlock what is locked; no copy may be running."""
        self._are_all_pinned = False
        for piece in np.flatnonzero(self._is_pinned).tolist():
            self._is_pinned[piece] = False
            try:
                driver.unregister(self.place_of(piece)[0])
            except Exception as cause:  # noqa: BLE001 - the process is ending
                logger.warning("kvcellar: host memory could not be unpinned: %s", cause)

    def place_of(self, piece: int) -> tuple[int, int]:
        """Address and bytes of a piece."""
        begin, end = self._borders[piece : piece + 2].tolist()
        return begin, end - begin


class PinningThread:
    """Pins all pieces, lowest address first, which is the order cells are used in.

    Args:
        prepare: has the kernel provide a piece's pages; see ``populate``.
    """

    def __init__(self, memory: PinnedMemory, driver: Driver, prepare: Prepare) -> None:
        self._memory = memory
        self._driver = driver
        self._prepare = prepare
        self._is_closing = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="kvcellar-pinning", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the thread has ended; False if the time was up first."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def close(self, timeout_seconds: float) -> bool:
        """Stop after the running piece; unpin everything. No copy may be running.

        Returns:
            Whether host memory may be unmapped.
        """
        self._is_closing.set()
        if not self.wait(timeout_seconds):
            logger.warning("kvcellar: host memory is still being pinned; it stays")
            return False
        self._memory.unpin_all(self._driver)
        return True

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self._driver.attach_thread()
            for piece in range(self._memory.num_pieces):
                if self._is_closing.is_set():
                    return
                self._prepare(*self._memory.place_of(piece))
                self._memory.pin(self._driver, piece)
        except Exception as cause:  # noqa: BLE001 - slower, nothing else
            _warn(self._memory, cause)
        else:
            logger.info(
                "kvcellar: pinned %s of host memory in %d pieces, %.1f s",
                format_bytes(self._memory.pinned_bytes),
                self._memory.num_pieces,
                time.monotonic() - started,
            )


def _warn(memory: PinnedMemory, cause: Any) -> None:
    logger.warning(
        "kvcellar: only %s of host memory could be pinned, copies to and from the rest "
        "are slower: %s",
        format_bytes(memory.pinned_bytes),
        cause,
    )
