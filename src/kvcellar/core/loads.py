"""What requests load: promised at the look-up, planned once there are blocks for it.

    look_up   ->  a pin on the deepest node at which loading pays: the promise
    begin     ->  copies up to there, or up to less; the pin is the job's from here on
    declined  ->  nothing is loaded; the pin goes
    ended     ->  the job's pin goes; after a failure the request is recomputed

A promise binds the planner alone. The engine may ask again before it has room, take
fewer tokens than it was promised, or none.
"""

from kvcellar.config import Settings
from kvcellar.core.actions import BlockCopies
from kvcellar.core.cost import LoadChoice, LoadCost, copied_bytes, load_bytes
from kvcellar.core.counters import CoreCounters
from kvcellar.core.events import Allocated, BlockTables, JobDone, LookUp
from kvcellar.core.load_plan import plan_load
from kvcellar.core.record import LoadRecord, RequestRecord
from kvcellar.core.stores import EagerStores
from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.reasons import MissReason


class Loads:
    """Finds what a request can load, keeps it there, and plans the copies.

    Args:
        index: what host memory holds.
        settings: the user's choices.
        cost: whether a load pays.
        counters: what was decided.
        stores: what waits to be stored.
    """

    def __init__(
        self,
        index: Index,
        settings: Settings,
        cost: LoadCost,
        counters: CoreCounters,
        stores: EagerStores,
    ) -> None:
        self._index = index
        self._settings = settings
        self._cost = cost
        self._counters = counters
        self._stores = stores
        self._margin_chunks = index.rules.margin_chunks
        self._chunk_tokens = index.chunk_tokens

    # -- look-up -------------------------------------------------------------------

    def num_findable(self, event: LookUp) -> int:
        """Chunks of a prompt that could be found, were they all held."""
        margin = self._margin_chunks
        last_token = event.num_tokens - (not margin)  # the margin leaves a token anyway
        num_hashed = len(event.hashes) // self._index.hashes_per_chunk
        return min(last_token // self._chunk_tokens, num_hashed)

    def look_up(
        self, record: RequestRecord, event: LookUp, limit: int, now: float
    ) -> int:
        """Promise what can be loaded; ``limit`` chunks of the prompt could be found.

        Returns:
            Tokens behind those that the device holds.
        """
        index = self._index
        record.trail.refusal = None
        record.local_tokens = event.local_tokens
        # The old pin stays until the new one is there: asked again, nothing moves.
        held, record.promise = record.promise, None
        known = index.deepest_known(event.hashes, limit, hint=record.known)
        record.known = known
        if known is not index.root:
            index.touch(known, now)
        shared = self._stores.known_tokens(known, event.hashes, limit)
        record.junction = max(shared - self._margin_chunks * self._chunk_tokens, 0)
        tokens = 0
        if record.controls.skip_load:
            record.trail.refusal = MissReason.NOT_ASKED
        elif not record.num_strikes:
            index.borrow_checkpoint(known, event.hashes)
            tokens = self._promise(record, known, now)
        if held is not None:
            index.unpin(held)
        return tokens

    def _promise(self, record: RequestRecord, known: Node, now: float) -> int:
        """Pin the deepest useful resume point; 0 when loading would not pay."""
        index = self._index
        for _ in range(self._margin_chunks):
            known = known.parent or known
        node, local_tokens = index.resume_point(known), record.local_tokens
        limits = (self._settings.max_load_tokens, record.controls.max_load_tokens)
        for most in limits:
            while most is not None and index.boundary(node) > local_tokens + most:
                record.trail.refusal = MissReason.MAX_LOAD_TOKENS
                assert node.parent is not None
                node = index.resume_point(node.parent)
        tokens = index.boundary(node) - local_tokens
        if tokens < 1:
            return 0
        if record.choice is None or record.choice is LoadChoice.TOO_SHORT:
            record.choice = self._cost.choose(
                tokens, lambda: load_bytes(index, node, local_tokens), now
            )
        if record.choice is not LoadChoice.LOAD:
            record.trail.refusal = record.trail.refusal or MissReason.TOO_CHEAP
            return 0
        index.pin(node)
        record.promise = node
        return tokens

    # -- load ----------------------------------------------------------------------

    def declined(self, record: RequestRecord) -> None:
        """A request has its blocks, and loads nothing."""
        choice, record.choice = record.choice, None
        self._counters.short_loads += choice is LoadChoice.TOO_SHORT
        self._counters.cheap_recomputes += choice is LoadChoice.TOO_CHEAP
        self.drop_promise(record)

    def begin(
        self, record: RequestRecord, event: Allocated, now: float
    ) -> tuple[LoadRecord, list[BlockCopies]] | None:
        """A request has its blocks, and loads what it was promised, or less.

        Returns:
            The job and its copies; None if the request cannot resume there.
        """
        record.choice = None
        node, plan = record.promise, None
        if node is not None:
            boundary = record.local_tokens + event.external_tokens
            plan = self._plan(node, boundary, record.local_tokens, event.tables)
        if node is None or plan is None:
            self.drop_promise(record)
            self._counters.refused_loads += 1
            record.num_strikes += 1
            return None
        record.promise = None  # its pin is the job's from here on
        node.is_loaded = True
        self._index.touch(node, now)
        self._counters.loaded_tokens += event.external_tokens
        self._counters.chosen_loads += 1
        num_bytes = copied_bytes(self._index.rules.layout, plan)
        return LoadRecord(event.request_id, node, num_bytes), plan

    def _plan(
        self, node: Node, boundary: int, local_tokens: int, tables: BlockTables
    ) -> list[BlockCopies] | None:
        """Load up to ``boundary``, at or below ``node``, if one can resume there."""
        while self._index.boundary(node) > boundary:
            assert node.parent is not None
            node = node.parent
        if self._index.boundary(node) < boundary or not node.is_resumable:
            return None
        return plan_load(self._index, node, local_tokens, tables)

    # -- ends ----------------------------------------------------------------------

    def drop_promise(self, record: RequestRecord) -> None:
        """What was promised, if anything, may go again."""
        if record.promise is not None:
            self._index.unpin(record.promise)
            record.promise = None

    def ended(
        self, job: LoadRecord, record: RequestRecord | None, event: JobDone, now: float
    ) -> None:
        """A load is over; ``record`` is its request's, if that goes on."""
        self._index.unpin(job.node)
        if not event.has_failed:
            self._cost.loaded.observe(job.num_bytes, event.seconds, now)
        elif record is not None:
            record.num_strikes += 1
