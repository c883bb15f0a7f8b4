"""Take away, and put back, everything that only watches a scheduler side.

``NONE`` plans and copies like any other engine, but nobody could say afterwards what it
did. ``USUAL`` is the default: accounts with their miss reasons, the memory of what has
left, and the statistics for ``/metrics``. ``FOLLOWED`` publishes KV events as well.
What cannot be taken away are single additions to counters inside the planner.
"""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kvcellar.core.ledger import Ledger
from kvcellar.index.departures import Departures
from kvcellar.integrations.vllm import following
from kvcellar.integrations.vllm.kv_events import KvEvents
from kvcellar.integrations.vllm.scheduler_side import SchedulerSide


class Watch(enum.Enum):
    """How much is watched."""

    NONE = "nothing"
    USUAL = "accounts and statistics"
    FOLLOWED = "and KV events"


class NoAccounting:
    """In the place of ``core.accounting.Accounting``."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def looked_up(self, *_: Any) -> None:
        """Nothing."""

    admitted = step_planned = stored = finished = reset = looked_up


class NoDepartures(Departures):
    """Remembers nothing."""

    def begin(self, now: float, request_id: str) -> None:
        """Nothing."""

    def note(self, key: bytes, reason: Any) -> None:
        """Nothing."""

    def forget(self, key: bytes) -> None:
        """Nothing."""


class NoCounts:
    """In the place of ``SchedulerCounts``."""

    def look_up_took(self, seconds: float) -> None:
        """Nothing."""


class Observers:
    """Of one scheduler side.

    Args:
        side: as it was built, with accounts and statistics.
        kv_cache_config: the engine's groups.
    """

    def __init__(self, side: SchedulerSide, kv_cache_config: Any) -> None:
        self._side = side
        self._kv_cache_config = kv_cache_config
        self._accounting = side.offloader._accounting
        self._departures = side.offloader.index.departures
        self._counts = side._counts

    def set(self, watch: Watch) -> None:
        """Watch this much from now on; host memory is emptied.

        The side must run nothing.
        """
        side: Any = self._side
        offloader: Any = side.offloader
        assert not offloader.records
        assert not offloader.jobs
        vars(side).pop("take_stats", None)  # else it would hide the class's method
        side._counts = self._counts
        side.reset()
        side.take_kv_events()
        side.take_stats()
        is_watched = watch is not Watch.NONE
        offloader._accounting = self._accounting if is_watched else NoAccounting()
        offloader.index.departures = self._departures if is_watched else NoDepartures(0)
        if not is_watched:
            side._counts = NoCounts()
            side.take_stats = lambda: None
        self._follow(side, is_on=watch is Watch.FOLLOWED)

    def _follow(self, side: Any, *, is_on: bool) -> None:
        planner = side._planner
        planner.is_followed, planner.kv_events = is_on, None
        planner.offloader.index.cells.announcements = None
        if is_on:
            planner.kv_events = KvEvents(planner.offloader, self._kv_cache_config)


@contextmanager
def openings(watch: Watch) -> Iterator[None]:
    """Whether prompts' first tokens are noted, until the block ends.

    For all sides in the process: it is a name in a module that they share.
    """
    if watch is not Watch.NONE:
        yield
        return
    with mock.patch.object(following, "opening_of", return_value=None):
        yield
