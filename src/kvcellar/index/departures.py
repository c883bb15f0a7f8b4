"""Why chunks that were computed once are not held: a bounded memory of their keys.

Whatever leaves the index is noted here, and whatever was computed and never entered it.
So a key that is neither held nor noted was never seen, or is forgotten. Deep chunks go
first and are forgotten first, so along a prompt "is noted" holds up to some depth.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from kvcellar.reasons import MissReason

FEWEST_NOTED, MOST_NOTED = 2**12, 2**17  # up to some 25 MB
NOTED_PER_CHUNK = 4  # that host memory could hold


def departures_for(num_chunks: int) -> int:
    """How many departures to remember beside so many chunks."""
    return min(max(NOTED_PER_CHUNK * num_chunks, FEWEST_NOTED), MOST_NOTED)


class Departure(NamedTuple):
    """Why one chunk is not held.

    Attributes:
        at: seconds on the planner's clock.
        request_id: for whose sake; empty for nobody's.
    """

    reason: MissReason
    at: float
    request_id: str


class Departures:
    """Chunk keys and why they are not held; the latest ``most`` of them.

    Args:
        most: keys to remember.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._noted: OrderedDict[bytes, Departure] = OrderedDict()
        self._now = 0.0
        self._request_id = ""
        self._latest: Departure | None = None

    def begin(self, now: float, request_id: str) -> None:
        """What is noted from here on happens now, for a request's sake."""
        self._now, self._request_id = now, request_id
        self._latest = None

    def note(self, key: bytes, reason: MissReason) -> None:
        """A chunk has left, or was computed and not stored."""
        noted, latest = self._noted, self._latest
        if latest is None or latest.reason is not reason:  # mostly many in a row
            latest = self._latest = Departure(reason, self._now, self._request_id)
        noted[key] = latest
        noted.move_to_end(key)
        if len(noted) > self._most:
            noted.popitem(last=False)

    def forget(self, keys: Iterable[bytes]) -> None:
        """These chunks are held again."""
        noted = self._noted
        for key in keys:
            if key in noted:
                del noted[key]

    def find(self, key: bytes) -> Departure | None:
        """Why a chunk is not held; None if it was never seen, or is forgotten."""
        return self._noted.get(key)

    def __len__(self) -> int:
        return len(self._noted)
