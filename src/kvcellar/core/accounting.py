"""Finds out for every prompt where its tokens came from, and why the rest did not.

Asked once per request, when it is admitted and nothing has changed since its look-up.
The work is a few halvings over its keys, whatever its length. A prompt is cut at
growing depths:

    device | loaded | promised | resume point | ready | storing | margin | not held ...

What is not held is explained chunk by chunk, by whoever knows its key: a running
request, lazy mode's waiting room, or the memory of departures. A key that nobody knows
was never seen.
"""

from collections.abc import Sequence

from kvcellar.core.account import Draft
from kvcellar.core.events import Allocated, TokensComputed
from kvcellar.core.ledger import Ledger
from kvcellar.core.openings import Openings
from kvcellar.core.record import RequestRecord
from kvcellar.core.running import Running
from kvcellar.core.stores import EagerStores
from kvcellar.core.trail import Trail
from kvcellar.index.departures import Departure
from kvcellar.index.halving import num_leading
from kvcellar.index.index import Index
from kvcellar.index.states import READY
from kvcellar.reasons import MissReason

_MOST_CHANGES = 8  # of reason along one prompt, behind what is held
_MOST_UNSTORED = 4096  # chunks noted of one request that were never stored

_Found = tuple[int, MissReason, Departure | None]


class Accounting:
    """Drafts an account at admission, closes it at the first step.

    Args:
        index: what host memory holds.
        stores: what waits to be stored.

    Attributes:
        ledger: all accounts.
    """

    def __init__(self, index: Index, stores: EagerStores) -> None:
        self._index = index
        self._stores = stores
        self._stride = index.hashes_per_chunk
        self._chunk = index.chunk_tokens
        self._running = Running(self._stride)
        self._openings = Openings()
        self.ledger = Ledger()

    # -- events --------------------------------------------------------------------

    def looked_up(
        self, record: RequestRecord, hashes: Sequence[bytes], limit: int
    ) -> None:
        """A prompt is looked up; ``limit`` chunks of it could be found."""
        trail = record.trail
        trail.hashes, trail.limit, trail.is_asked = hashes, limit, True

    def admitted(self, record: RequestRecord, event: Allocated, now: float) -> None:
        """A request has its blocks; before its promise is used or dropped."""
        trail = record.trail
        self._index.departures.begin(now, record.request_id)
        if not trail.is_asked:
            return
        trail.is_asked = False
        if not trail.is_accounted:
            trail.draft = self._draft(record, event)
        known = record.known.depth
        trail.num_held = self._stores.num_known(known, trail.hashes, trail.limit)
        self._running.follow(trail)

    def step_planned(
        self, record: RequestRecord, event: TokensComputed, now: float
    ) -> None:
        """A step of a request is planned; its first one closes the account."""
        trail = record.trail
        self._index.departures.begin(now, record.request_id)
        trail.hashes = event.hashes
        trail.computed_tokens = event.computed_tokens
        trail.num_prompt_tokens = event.num_prompt_tokens
        if not trail.is_accounted:
            trail.is_accounted = True
            self._close(record, event, now)

    def stored(self, record: RequestRecord) -> None:
        """What the step completes is stored, or waits."""
        record.trail.num_held = max(record.tip.depth, record.num_waiting)
        self._running.follow(record.trail)

    def finished(self, record: RequestRecord, now: float) -> None:
        """A request ends; what it computed and did not store is noted."""
        trail = record.trail
        self._running.leave(trail)
        if trail.is_accounted and not record.is_stale:
            self._index.departures.begin(now, record.request_id)
            self._note_unstored(trail)

    def reset(self, record: RequestRecord) -> None:
        """Nothing is held any more; a running request computes for itself alone."""
        self._running.leave(record.trail)
        record.trail.num_held = 0

    # -- drafting ------------------------------------------------------------------

    def _draft(self, record: RequestRecord, event: Allocated) -> Draft:
        index, trail, known = self._index, record.trail, record.known
        draft = Draft(record.local_tokens, event.external_tokens)
        if record.promise is not None:
            draft.add(index.boundary(record.promise), MissReason.DECLINED)
        servable = known
        for _ in range(index.rules.margin_chunks):
            servable = servable.parent or servable
        refusal = MissReason.FAILED_LOAD if record.num_strikes else trail.refusal
        resume = index.boundary(index.resume_point(servable))
        draft.add(resume, refusal or MissReason.DECLINED)
        ready = servable
        while ready.state is not READY:
            assert ready.parent is not None  # the root is always ready
            ready = ready.parent
        draft.add(index.boundary(ready), MissReason.NO_CHECKPOINT)
        draft.add(index.boundary(servable), MissReason.STORING)
        draft.add(index.boundary(known), MissReason.DRAFT_MARGIN)
        self._explain_rest(draft, trail, known.depth, event.opening)
        return draft

    def _explain_rest(
        self, draft: Draft, trail: Trail, depth: int, opening: int | None
    ) -> None:
        """Why chunks behind ``depth`` are not held."""
        limit, unknown = trail.limit, MissReason.NEVER_SEEN
        if limit and self._openings.meets_other(opening, self._key(trail, 1)):
            unknown = MissReason.NEVER_SEEN if depth else MissReason.OTHER_IDENTITY
        for _ in range(_MOST_CHANGES):
            if depth >= limit:
                return
            found = self._explain_chunk(trail, depth)
            if found is None:
                break
            depth, reason, departure = found
            draft.add(depth * self._chunk, reason, departure)
            unknown = MissReason.NEVER_SEEN
        draft.add(limit * self._chunk, unknown)

    def _explain_chunk(self, trail: Trail, depth: int) -> _Found | None:
        """Why the chunk behind ``depth`` is not held, and up to where it is so."""
        key = self._key(trail, depth + 1)
        other = self._running.find(key)
        if other is not None and other is not trail:
            return self._explain_by_other(trail, depth, other)
        num_known = self._stores.num_known(depth, trail.hashes, trail.limit)
        if num_known > depth:
            return num_known, MissReason.WAITING, None
        departure = self._index.departures.find(key)
        if departure is None:
            return None
        reason = departure.reason
        end = num_leading(
            depth + 1, trail.limit, lambda n: self._departed(trail, n) is reason
        )
        return end, reason, departure

    def _explain_by_other(self, trail: Trail, depth: int, other: Trail) -> _Found:
        """A running request has these chunks, computed or not."""
        shared = self._running.num_shared(other, trail.hashes, trail.limit)
        num_computed = min(other.computed_tokens // self._chunk, shared)
        if num_computed > depth and other.unstored is not None:
            return num_computed, other.unstored, None
        return max(shared, depth + 1), MissReason.IN_PROGRESS, None

    def _departed(self, trail: Trail, depth: int) -> MissReason | None:
        departure = self._index.departures.find(self._key(trail, depth))
        return departure.reason if departure is not None else None

    def _key(self, trail: Trail, depth: int) -> bytes:
        return trail.hashes[depth * self._stride - 1]

    # -- closing -------------------------------------------------------------------

    def _close(self, record: RequestRecord, event: TokensComputed, now: float) -> None:
        trail, first = record.trail, event.first_token
        draft, trail.draft = trail.draft, None
        if draft is None:  # it was never looked up
            draft = Draft(first, 0)
            draft.add(event.num_prompt_tokens, MissReason.NOT_ASKED)
        account = draft.close(record.request_id, now, first, event.num_prompt_tokens)
        self.ledger.enter(account)
        depth = min(first // self._chunk, len(trail.hashes) // self._stride)
        if depth:
            self.ledger.prefixes.count(
                self._key(trail, depth), depth * self._chunk, account.host_tokens
            )

    # -- what is not stored --------------------------------------------------------

    def _note_unstored(self, trail: Trail) -> None:
        last = len(trail.hashes) // self._stride
        if trail.computed_tokens < trail.num_prompt_tokens:  # it was aborted
            last = min(last, trail.computed_tokens // self._chunk)
        reason = trail.unstored or self._stores.answer_reason()
        if reason is None:
            return
        nodes, departures = self._index.nodes, self._index.departures
        for depth in range(trail.num_held + 1, last + 1)[:_MOST_UNSTORED]:
            key = self._key(trail, depth)
            if key not in nodes and not self._stores.is_waiting(key):
                departures.note(key, reason)
