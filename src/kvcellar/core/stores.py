"""Eager mode: a chunk is stored in the step that completes it.

Also what both modes share: how far a request's tokens are wanted, and where a path
that is being stored continues.
"""

from collections.abc import Collection, Sequence

from kvcellar.config import Settings
from kvcellar.core.controls import RequestControls
from kvcellar.core.counters import CoreCounters
from kvcellar.core.events import BlocksThreatened, TokensComputed
from kvcellar.core.keeping import Keep, lease_path
from kvcellar.core.placement import Placement
from kvcellar.core.record import RequestRecord
from kvcellar.core.store_plan import StorePlan
from kvcellar.index.halving import num_leading
from kvcellar.index.index import Index
from kvcellar.index.newcomers import Newcomer, Newcomers
from kvcellar.index.node import Node
from kvcellar.reasons import MissReason


def num_wanted_tokens(
    settings: Settings,
    controls: RequestControls,
    num_prompt_tokens: int,
    num_tokens: int,
) -> int:
    """How many of a request's first ``num_tokens`` are wanted in host memory."""
    if controls.skip_store:
        return 0
    if not settings.store_decoded:
        num_tokens = min(num_tokens, num_prompt_tokens)
    for most in (settings.max_store_tokens, controls.max_store_tokens):
        if most is not None:
            num_tokens = min(num_tokens, most)
    return num_tokens


def unwanted_reason(
    settings: Settings, controls: RequestControls, wanted_tokens: int
) -> MissReason:
    """Why the tokens behind the first ``wanted_tokens`` are not wanted."""
    if controls.skip_store:
        return MissReason.FILTERED
    limits = (settings.max_store_tokens, controls.max_store_tokens)
    is_limit = wanted_tokens in limits
    return MissReason.MAX_STORE_TOKENS if is_limit else MissReason.ANSWER


class EagerStores:
    """Plans stores as tokens are computed.

    Args:
        index: what host memory holds.
        settings: the user's choices.
        counters: what was decided.
    """

    def __init__(
        self, index: Index, settings: Settings, counters: CoreCounters
    ) -> None:
        self.index = index
        self.settings = settings
        self.counters = counters
        self.chunk_tokens = index.rules.layout.chunk_tokens
        self.hash_tokens = index.rules.layout.hash_block_tokens
        self.placement = Placement.for_rules(index.rules, settings)
        self.newcomers = Newcomers(index)

    def tokens_computed(
        self, record: RequestRecord, event: TokensComputed, now: float
    ) -> StorePlan:
        """Store the chunks that the step completes, and the checkpoints it passes."""
        num_chunks = self.begin_step(record, event)
        plan = self.plan(record, event)
        self.store_path(record, plan, num_chunks, now)
        through = min(self.index.boundary(record.tip), event.computed_tokens)
        for boundary in self.due(record, event, through):
            node = self.index.nodes[event.hashes[boundary // self.hash_tokens - 1]]
            if node.checkpoint is not None:
                self.counters.held_checkpoints += 1
            elif node.needs_checkpoint:
                is_decoded = boundary > event.num_prompt_tokens
                plan.add_checkpoint(node, is_decoded=is_decoded)
        return plan

    def admit(
        self,
        record: RequestRecord,
        keys: Sequence[bytes],
        hashes: Sequence[bytes],
        now: float,
    ) -> None:
        """A prompt is new: as much of it comes in as is worth what has to go for it.

        What its user wants to keep, and what a tenant pays for out of its own share,
        is not weighed.
        """
        controls, index = record.controls, self.index
        is_kept = controls.keep_seconds or record.keep_until > now
        if is_kept or record.origin.tenant is not None:
            return
        num_tokens = len(keys) * self.chunk_tokens
        wanted = num_wanted_tokens(self.settings, controls, num_tokens, num_tokens)
        keys = keys[: wanted // self.chunk_tokens]
        tip = index.deepest_known(hashes, len(keys), hint=record.known)
        uses = [(len(keys), now)]
        admitted = self.newcomers.admit(
            Newcomer(tip, keys, uses, record.origin.priority)
        )
        if admitted < len(keys):
            record.num_admitted = admitted
            record.not_admitted = MissReason.OUTRANKED

    def blocks_threatened(self, event: BlocksThreatened, now: float) -> list[StorePlan]:
        """Nothing: what was worth storing is stored."""
        del event, now
        return []

    def known_tokens(
        self, known: Node, hashes: Sequence[bytes], num_chunks: int
    ) -> int:
        """Where a prompt leaves what is known of its path."""
        del hashes, num_chunks
        return self.index.boundary(known)

    def keep(self, record: RequestRecord, keep: Keep) -> None:
        """A request that has ended wants its path to stay."""
        end, known = record.tip, record.known
        is_live = self.index.nodes.get(known.key) is known
        if is_live and known.depth > end.depth:
            end = known  # what it used but did not want stored
        lease_path(self.index, end, keep)

    def num_known(self, depth: int, hashes: Sequence[bytes], num_chunks: int) -> int:
        """Chunks of a prompt that are held or wait to be; ``depth`` of them are."""
        del hashes, num_chunks
        return depth

    def is_waiting(self, key: bytes) -> bool:
        """Whether a chunk waits to be stored."""
        del key
        return False

    def answer_reason(self) -> MissReason | None:
        """Why answers are not stored; None if they are."""
        return None if self.settings.store_decoded else MissReason.ANSWER

    def count_use(self, record: RequestRecord, now: float) -> None:
        """A request has ended: one use of its whole path."""
        if self.index.nodes.get(record.tip.key) is record.tip:
            self.index.count_use(record.tip, now)

    def take_due(self) -> Collection[bytes]:
        """Keys of chunks whose time to be stored has come since the last call."""
        return ()

    def reset(self) -> None:
        """Nothing is kept here."""

    def seams(self, record: RequestRecord, event: TokensComputed) -> Sequence[int]:
        """Boundaries inside a prompt where its parts fare differently.

        Where it leaves what was held before and has gone, since the rest may go again
        by itself; and where it is cut off. Not where the engine sets states aside, who
        does it at no such place.
        """
        index, depths = self.index, list[int]()
        if index.rules.is_overwritten:
            return depths
        if self.placement.rules.has_junctions and not index.order.is_superseded_first:
            depths.append(self._num_seen(record, event))
        if record.num_admitted is not None:
            depths.append(record.num_admitted)
        return [d * self.chunk_tokens for d in depths if d > record.tip.depth]

    def _num_seen(self, record: RequestRecord, event: TokensComputed) -> int:
        """Chunks of a prompt that are held, or are remembered to have been computed."""
        stride, find = self.index.hashes_per_chunk, self.index.departures.find
        limit = (event.num_prompt_tokens - 1) // self.chunk_tokens
        limit = min(limit, len(event.hashes) // stride)
        return num_leading(
            min(record.tip.depth, limit),
            limit,
            lambda n: find(event.hashes[n * stride - 1]) is not None,
        )

    # -- shared with lazy mode -----------------------------------------------------

    def plan(self, record: RequestRecord, event: TokensComputed) -> StorePlan:
        """An empty plan for what the step computes."""
        return StorePlan(
            self.index, event.hashes, event.tables, self.counters, record.origin
        )

    def begin_step(self, record: RequestRecord, event: TokensComputed) -> int:
        """Follow a request's path, and choose its boundaries if it has just begun.

        Returns:
            Chunks of it that may be stored by now.
        """
        num_chunks = self.num_storable_chunks(record, event)
        self.move_tip(record, event, num_chunks)
        if record.placed_through is None:
            first = event.first_token
            record.placed_through = first - 1
            spaced = self.placement.spaced(first, event.num_prompt_tokens)
            record.inside = (*spaced, *self.seams(record, event))
        return num_chunks

    def num_storable_chunks(self, record: RequestRecord, event: TokensComputed) -> int:
        """Whole chunks that are computed, hashed, wanted by the settings, admitted."""
        known = min(event.computed_tokens, len(event.hashes) * self.hash_tokens)
        wanted = num_wanted_tokens(
            self.settings, record.controls, event.num_prompt_tokens, known
        )
        record.trail.unstored = None
        if wanted < known:
            record.trail.unstored = unwanted_reason(
                self.settings, record.controls, wanted
            )
        num_chunks = wanted // self.chunk_tokens
        if record.num_admitted is not None and record.num_admitted < num_chunks:
            record.trail.unstored = record.not_admitted
            num_chunks = record.num_admitted
        return num_chunks

    def move_tip(
        self, record: RequestRecord, event: TokensComputed, num_chunks: int
    ) -> None:
        """Let the record's pin follow what is known of its path."""
        record.num_prompt_tokens = event.num_prompt_tokens
        tip = self.index.deepest_known(event.hashes, num_chunks, hint=record.tip)
        self.index.pin(tip)
        self.index.unpin(record.tip)
        record.tip = tip

    def store_path(
        self, record: RequestRecord, plan: StorePlan, num_chunks: int, now: float
    ) -> None:
        """Add chunks below the tip, as far as there is room; move the tip."""
        first = record.tip
        added = plan.add_path(first, num_chunks)
        if first.depth + len(added) < num_chunks:
            record.trail.unstored = plan.refusal
        if added:
            record.tip = tip = added[-1]
            self.index.pin(tip)
            self.index.unpin(first)
            self.index.touch(tip, now)

    def due(
        self, record: RequestRecord, event: TokensComputed, through: int
    ) -> list[int]:
        """Boundaries whose turn it is; each has one chance."""
        due = self.placement.due(
            record, event.num_prompt_tokens, through, event.handed_over
        )
        record.placed_through = max(record.placed_through or 0, through)
        return due
