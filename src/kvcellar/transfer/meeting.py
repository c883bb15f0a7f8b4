"""Where the ranks of one shared arena wait for each other: a pipe for each direction.

    rank 0 --[ token ]--> rank 1        everyone writes to everyone, then reads from
    rank 0 <--[ token ]-- rank 1        everyone: who has read all has met all

Pipes rather than counters in shared memory, for three reasons: a reader sleeps until
there is something to read; the kernel orders memory between a write and the read that
sees it, on every processor; and a process that dies closes its pipes, so that the
others learn it at once and not when a time is up.

Nobody is ever more than one meeting ahead, so a pipe holds two tokens at most.
"""

import os
import select
import time
from collections.abc import Mapping

from kvcellar.errors import TierError

MEETING_SECONDS = 60.0
"""Longest wait for a rank that lives: its thread may be held up by a busy machine."""

_TOKEN_BYTES = 8


class Meeting:
    """This rank's ends of all pipes, which are its own from now on.

    ``meet`` is for one thread; ``interrupt`` for any; ``close`` when none is in
    ``meet``.

    Args:
        incoming: the end to read from, by rank.
        outgoing: the end to write to, by rank.
        timeout_seconds: of each ``meet``.
    """

    def __init__(
        self,
        incoming: Mapping[int, int],
        outgoing: Mapping[int, int],
        timeout_seconds: float = MEETING_SECONDS,
    ) -> None:
        self._incoming = dict(incoming)
        self._outgoing = dict(outgoing)
        self._timeout_seconds = timeout_seconds
        self._interrupted, self._interrupt = os.pipe()
        self._is_closed = False

    def meet(self, token: int) -> None:
        """Wait until every rank has come to the meeting of this name.

        If this raises, the rank has left for good, and the others learn it when they
        next meet.

        Args:
            token: the same on all ranks, in [0, 2**63).

        Raises:
            TierError: a rank has left, has come to another meeting, or has not come in
                time; or this one was interrupted or has left.
        """
        try:
            self._tell(token)
            self._hear(token)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Close what the others read from; they learn it when they next meet."""
        while self._outgoing:
            _, end = self._outgoing.popitem()
            os.close(end)

    def interrupt(self) -> None:
        """End a running ``meet``, and every later one, with an error."""
        if not self._is_closed:
            os.write(self._interrupt, b"!")

    def close(self) -> None:
        """Close all pipes; a second call does nothing."""
        self.leave()
        if self._is_closed:
            return
        self._is_closed = True
        for end in (*self._incoming.values(), self._interrupted, self._interrupt):
            os.close(end)
        self._incoming.clear()

    def _tell(self, token: int) -> None:
        if not self._outgoing:
            raise _failure("this rank has left")
        for rank, end in self._outgoing.items():
            try:
                os.write(end, token.to_bytes(_TOKEN_BYTES, "little"))
            except OSError as cause:
                raise _failure(f"rank {rank} has left ({cause.strerror})") from cause

    def _hear(self, token: int) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        missing = {end: rank for rank, end in self._incoming.items()}
        poller = select.poll()
        for end in (self._interrupted, *missing):
            poller.register(end, select.POLLIN)
        while missing:
            left = max(deadline - time.monotonic(), 0.0)
            ready = [end for end, _ in poller.poll(left * 1000)]
            if not ready:
                ranks = ", ".join(map(str, sorted(missing.values())))
                raise _failure(
                    f"rank(s) {ranks} did not come within {self._timeout_seconds:g} s"
                )
            if self._interrupted in ready:
                raise _failure("interrupted")
            for end in ready:
                # Of those heard, only their leaving is told from here on.
                poller.modify(end, 0)
                self._check(end, token, is_missing=end in missing)
                missing.pop(end, None)

    def _check(self, end: int, token: int, *, is_missing: bool) -> None:
        rank = next(r for r, other in self._incoming.items() if other == end)
        message = os.read(end, _TOKEN_BYTES) if is_missing else b""
        if not message:
            raise _failure(f"rank {rank} has left")
        heard = int.from_bytes(message, "little")
        if heard != token:
            raise _failure(f"rank {rank} is at {heard} and this one at {token}")


def _failure(reason: str) -> TierError:
    return TierError("host", "wait for the ranks that share it", reason)
