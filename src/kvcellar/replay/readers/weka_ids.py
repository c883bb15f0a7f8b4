"""Ids of Weka's session files, made comparable across the whole trace.

Local ids count anew in every session, so each session gets a range of its own. Global
ids were issued by counters that overlap between batches: taken bare, unrelated blocks
would match. They are chained on their predecessor, so that an id stands for the whole
prefix again.

A request either lists its ids (``hash_ids``) or says how it differs from the request
before it in the same list: ``k`` leading ids are kept, and ``r`` gives the others as
``[start, count, start, count, ...]``.
"""

import numpy as np

from kvcellar.replay.readers.ids import MAX_RUN_BLOCKS, Ids
from kvcellar.replay.readers.record import Fields

_MAX_LOCAL_ID = 2**32
_NO_IDS: Ids = np.empty(0, dtype=np.int64)


class IdScope:
    """Hands out the trace's ids, session after session."""

    def __init__(self) -> None:
        self._is_global = False
        self._first_free = 0
        self._session_base = 0
        self._chained: dict[tuple[int, int], int] = {}

    def begin_session(self, *, is_global: bool) -> None:
        """Start a session whose ids are of the given scope."""
        self._is_global = is_global
        self._session_base = self._first_free

    def translate(self, ids: Ids, previous: Ids, previous_result: Ids) -> Ids:
        """Give the trace's ids for a request's, from those of the request before it.

        Raises:
            ValueError: a local id is out of the range that is known to be in use.
        """
        if self._is_global:
            num_same = num_common(ids, previous)
            return np.concatenate(
                (
                    previous_result[:num_same],
                    self._chain(ids, num_same, previous_result),
                )
            )
        if not len(ids):
            return ids
        if ids.min() < 0 or ids.max() >= _MAX_LOCAL_ID:
            raise ValueError(f"local ids from 0 to {_MAX_LOCAL_ID - 1}")
        result = ids + self._session_base
        self._first_free = max(self._first_free, int(result.max()) + 1)
        return result

    def _chain(self, ids: Ids, num_same: int, previous_result: Ids) -> Ids:
        # From the far end, so that local ids of other sessions never meet them.
        parent = int(previous_result[num_same - 1]) if num_same else 0
        found = []
        for number in ids[num_same:].tolist():
            fresh = -len(self._chained) - 1
            parent = self._chained.setdefault((parent, number), fresh)
            found.append(parent)
        return np.array(found, dtype=np.int64)


class IdList:
    """Ids of the requests of one list, one request after the other.

    Attributes:
        current: the trace's ids of the last request taken, ``[num_blocks]``.
    """

    def __init__(self, scope: IdScope) -> None:
        self.current = _NO_IDS
        self._recorded = _NO_IDS
        self._scope = scope

    def take(self, request: Fields, block_tokens: int) -> bool:
        """Go on to the next request; say whether it repeats the prompt before it.

        Raises:
            TraceError: its ids are not what the format says.
        """
        recorded = self._recorded_ids(request)
        name = "hash_ids" if "hash_ids" in request.data else "r"
        num_full = request.num_full_blocks(len(recorded), name, "in", block_tokens)
        recorded = recorded[:num_full]
        try:
            self.current = self._scope.translate(recorded, self._recorded, self.current)
        except ValueError as error:
            raise request.error(name, str(error)) from error
        is_repeated = np.array_equal(recorded, self._recorded)
        self._recorded = recorded
        return is_repeated

    def _recorded_ids(self, request: Fields) -> Ids:
        if "hash_ids" in request.data:
            return np.frombuffer(request.ids("hash_ids"), dtype=np.int64)
        num_kept = request.whole("k")
        if num_kept > len(self._recorded):
            expected = f"at most {len(self._recorded)}, the ids of the request before"
            raise request.error("k", expected)
        flat = request.ids("r")
        starts, counts = flat[::2], flat[1::2]
        if len(flat) % 2 or any(not 0 < count <= MAX_RUN_BLOCKS for count in counts):
            raise request.error("r", "start, count, start, count, ...")
        if sum(counts) > MAX_RUN_BLOCKS:
            raise request.error("r", f"at most {MAX_RUN_BLOCKS} ids")
        runs = [
            np.arange(start, start + count, dtype=np.int64)
            for start, count in zip(starts, counts, strict=True)
        ]
        return np.concatenate((self._recorded[:num_kept], *runs))


def num_common(ids: Ids, others: Ids) -> int:
    """Count the leading ids that two prompts share."""
    length = min(len(ids), len(others))
    differing = np.flatnonzero(ids[:length] != others[:length])
    return int(differing[0]) if len(differing) else length
