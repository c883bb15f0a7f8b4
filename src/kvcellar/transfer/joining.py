"""How ranks that hold the same bytes come to share one arena, at start.

Everyone offers its files, hears of the others' and opens what it needs; then everyone
says whether that went well. So all ranks share, or none does:

    offer     memory file of the first rank of each set; a pipe for each other rank
    gather    (1) all offers
    open      the first rank's memory file; the pipes that the others read from
    gather    (2) all failures

Nothing but these two exchanges is waited for, and every rank takes part in both,
whatever fails.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvcellar.errors import TierError
from kvcellar.tiers.shared_memory import (
    OpenFile,
    describe_file,
    new_memory_file,
    open_file,
)
from kvcellar.transfer.arena_share import ArenaShare
from kvcellar.transfer.meeting import Meeting

Gather = Callable[[object], Sequence[object]]
"""Give every rank what every rank gives, in rank order; called by all alike."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What a rank has of a shared arena.

    Attributes:
        file: the arena's memory file, still empty; the caller's to close.
        share: this rank's part; the caller's to close.
    """

    file: int
    share: ArenaShare


@dataclass(frozen=True, slots=True)
class NotJoined:
    """Why ranks cannot share; the same on all of them."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one rank lets the others open.

    Attributes:
        memory: the memory file, of the first rank of a set.
        pipes: ends to write to, by the rank that is to write.
    """

    memory: OpenFile | None = None
    pipes: dict[int, OpenFile] = field(default_factory=dict)


def join(gather: Gather, rank: int, num_sharing: int) -> Joined | NotJoined:
    """Let each ``num_sharing`` consecutive ranks share an arena. Called by all ranks.

    Args:
        gather: exchanges with all ranks.
        rank: this one's number.
        num_sharing: ranks in a set; it divides their number.
    """
    first = rank // num_sharing * num_sharing
    joining = _Joining(rank, range(first, first + num_sharing))
    joining.attempt(joining.make)
    offers = gather(joining.offer)
    joining.attempt(lambda: joining.open(offers))
    failures = gather(joining.failure)
    joining.close_offer()
    found = [f"rank {r}: {reason}" for r, reason in enumerate(failures) if reason]
    if found:
        joining.close()
        return NotJoined(found[0])
    return joining.joined()


class _Joining:
    """One rank on its way; whatever it holds is closed in the end."""

    def __init__(self, rank: int, ranks: range) -> None:
        self._rank = rank
        self._ranks = ranks
        self._others = [other for other in ranks if other != rank]
        self._offered: list[int] = []
        self._incoming: dict[int, int] = {}
        self._outgoing: dict[int, int] = {}
        self._file: int | None = None
        self.offer = _Offer()
        self.failure: str | None = None

    def attempt(self, step: Callable[[], None]) -> None:
        """Take a step, unless one has failed."""
        if self.failure is not None:
            return
        try:
            step()
        except (TierError, OSError) as cause:
            self.failure = str(cause)

    def make(self) -> None:
        """Make what this rank offers."""
        memory = None
        if self._rank == self._ranks[0]:
            self._file = new_memory_file()
            memory = describe_file(self._file)
        pipes = {}
        for other in self._others:
            self._incoming[other], end = os.pipe()
            self._offered.append(end)
            pipes[other] = describe_file(end)
        self.offer = _Offer(memory, pipes)

    def open(self, offers: Sequence[object]) -> None:
        """Open what the others of the set offer."""
        for other in self._others:
            offer = offers[other]
            if not isinstance(offer, _Offer):
                raise TierError("host", "share memory", f"rank {other} offers nothing")
            if self._rank not in offer.pipes:
                return  # it has failed, and is about to say why
            self._outgoing[other] = open_file(offer.pipes[self._rank], os.O_WRONLY)
            if offer.memory is not None:
                self._file = open_file(offer.memory, os.O_RDWR)

    def close_offer(self) -> None:
        """Close ends of pipes that the others have opened by now, or never will."""
        _close(self._offered)

    def close(self) -> None:
        """Close everything."""
        _close([*self._incoming.values(), *self._outgoing.values()])
        if self._file is not None:
            os.close(self._file)

    def joined(self) -> Joined:
        """Hand over what was opened."""
        assert self._file is not None
        number = self._rank - self._ranks[0]
        meeting = Meeting(self._incoming, self._outgoing)
        return Joined(self._file, ArenaShare(number, len(self._ranks), meeting))


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
    files.clear()
