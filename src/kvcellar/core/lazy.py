"""Lazy mode: a chunk is stored when the device is about to lose it.

Host memory then holds what the device does not, which matters when it is not much
larger than the device cache. Nothing is copied while nothing is threatened, and the
device's own order of eviction is never touched: sources in its free queue are fenced,
not referenced.

A chunk needs its ancestors and is useless without a checkpoint, so a threatened block
brings the whole path down to it along, with the checkpoints that wait on that path.
Checkpoints that the engine would not keep cannot wait: they are stored at once.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace

from kvcellar.config import Settings
from kvcellar.core.counters import CoreCounters
from kvcellar.core.events import BlocksThreatened, TokensComputed
from kvcellar.core.keeping import Keep, lease_path
from kvcellar.core.record import RequestRecord
from kvcellar.core.store_plan import StorePlan
from kvcellar.core.stores import EagerStores
from kvcellar.core.waiting import CachedBlocks, WaitingChunk, WaitingRoom
from kvcellar.core.waiting_path import WaitingPath
from kvcellar.index.evictable import chunks_per_sample
from kvcellar.index.halving import num_leading
from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.reasons import MissReason

_SWEEP_CHUNKS = 256  # waiting chunks above which lost ones are looked for
_MOST_DUE = 2**16  # keys; more only if no prompt comes for long


class LazyStores(EagerStores):
    """Plans stores as device blocks are threatened."""

    def __init__(
        self, index: Index, settings: Settings, counters: CoreCounters
    ) -> None:
        super().__init__(index, settings, counters)
        # The engine keeps no blocks for boundaries inside a prompt: these could not
        # wait, and would bring the prompt's whole path along at once.
        self.placement = replace(self.placement, spaced_per_token=0.0)
        if not index.rules.margin_chunks:
            self.placement = replace(self.placement, step_back_tokens=0)
        self.waiting = WaitingRoom(index.rules)
        layout = index.rules.layout
        self._chunk_groups = {
            layout.groups[position].group_id for position in layout.chunk_positions
        }
        self._chunks_per_sample = chunks_per_sample(self.chunk_tokens)
        self._most_chunks = _most_chunks(index)
        self._is_due_read = index.order.live.reads_due
        self._due: deque[bytes] = deque(maxlen=_MOST_DUE)
        self._sweep_at = _SWEEP_CHUNKS

    def tokens_computed(
        self, record: RequestRecord, event: TokensComputed, now: float
    ) -> StorePlan:
        """Let what the step completes wait; store only what would not be kept."""
        num_chunks = self.begin_step(record, event)
        self._let_wait(record, event, num_chunks)
        plan = self.plan(record, event)
        for boundary in self.due(record, event, num_chunks * self.chunk_tokens):
            if boundary > self._most_chunks * self.chunk_tokens:
                break
            if not self._may_wait(record, event, boundary):
                self._store_now(record, event, plan, boundary, now)
        return plan

    def admit(
        self,
        record: RequestRecord,
        keys: Sequence[bytes],
        hashes: Sequence[bytes],
        now: float,
    ) -> None:
        """Everything may wait; it pushes nothing out before its time has come."""

    def seams(self, record: RequestRecord, event: TokensComputed) -> Sequence[int]:
        """None: the engine keeps no blocks for boundaries inside a prompt."""
        del record, event
        return ()

    def blocks_threatened(self, event: BlocksThreatened, now: float) -> list[StorePlan]:
        """Store the paths that the device is about to lose."""
        plans = []
        for block in event.blocks:
            if self._is_due_read and block[0] in self._chunk_groups:
                self._due.append(block[1])
            for chunk in self.waiting.threatened(block):
                if chunk not in self.waiting:
                    continue  # it came, or was turned away, with one before
                plan = self._store_waiting(chunk, event.cached, now)
                if not plan.is_empty:
                    plans.append(plan)
        if len(self.waiting.chunks) > self._sweep_at:
            self._sweep(event.cached)
        return plans

    def known_tokens(
        self, known: Node, hashes: Sequence[bytes], num_chunks: int
    ) -> int:
        """Where a prompt leaves what is known of its path, on host or device."""
        return self.num_known(known.depth, hashes, num_chunks) * self.chunk_tokens

    def num_known(self, depth: int, hashes: Sequence[bytes], num_chunks: int) -> int:
        """Chunks of a prompt that are held or wait to be; ``depth`` of them are."""
        stride, waiting = self.index.hashes_per_chunk, self.waiting.chunks
        return num_leading(
            depth, num_chunks, lambda n: hashes[n * stride - 1] in waiting
        )

    def is_waiting(self, key: bytes) -> bool:
        """Whether a chunk waits to be stored."""
        return key in self.waiting.chunks

    def keep(self, record: RequestRecord, keep: Keep) -> None:
        """What is on the device alone is leased when it comes."""
        super().keep(record, keep)
        chunk = self.waiting.chunks.get(record.end_key)
        if chunk is not None and (chunk.keep is None or chunk.keep.until < keep.until):
            chunk.keep = keep

    def count_use(self, record: RequestRecord, now: float) -> None:
        """A request has ended; what only the device has learns of it when it comes."""
        node = self.index.nodes.get(record.end_key)
        waiting = self.waiting.chunks.get(record.end_key)
        if node is not None:
            self.index.count_use(node, now)
        elif waiting is not None:
            waiting.uses.append(now)
        else:
            super().count_use(record, now)

    def take_due(self) -> Collection[bytes]:
        """Keys of chunks whose time to be stored has come since the last call.

        None are collected where the policy does not read them.
        """
        taken = list(self._due)
        self._due.clear()
        return taken

    def reset(self) -> None:
        """What is on the device is invalid too."""
        self.waiting.clear()
        self._due.clear()

    # -- waiting -------------------------------------------------------------------

    def _let_wait(
        self, record: RequestRecord, event: TokensComputed, num_chunks: int
    ) -> None:
        stride = self.index.hashes_per_chunk
        first = max(record.tip.depth, record.num_waiting)
        for depth in range(first + 1, num_chunks + 1):
            key = event.hashes[depth * stride - 1]
            if key not in self.index.nodes and key not in self.waiting.chunks:
                self.waiting.add_chunk(event.hashes, depth, record.origin)
        record.num_waiting = max(num_chunks, first)
        record.end_key = event.hashes[num_chunks * stride - 1] if num_chunks else b""

    def _may_wait(
        self, record: RequestRecord, event: TokensComputed, boundary: int
    ) -> bool:
        """Enter a checkpoint that the engine keeps; True if nothing is left to do."""
        key = event.hashes[boundary // self.hash_tokens - 1]
        rules, groups = self.index.rules, self.index.rules.layout.groups
        node = self.index.nodes.get(key)
        is_held = node is not None and node.checkpoint is not None
        if is_held or not rules.needs_checkpoint(boundary):
            return True
        for position, blocks in rules.checkpoint_blocks(boundary):
            group_id = groups[position].group_id
            if not all(event.tables.is_kept(group_id, block) for block in blocks):
                return False
        chunk = self.waiting.chunks.get(key)
        if chunk is None:
            depth = boundary // self.chunk_tokens
            chunk = self.waiting.add_checkpoint_only(event.hashes, depth, record.origin)
        if not chunk.has_checkpoint:
            self.waiting.add_checkpoint(chunk)
        return True

    # -- storing -------------------------------------------------------------------

    def _store_now(
        self,
        record: RequestRecord,
        event: TokensComputed,
        plan: StorePlan,
        boundary: int,
        now: float,
    ) -> None:
        """Store a checkpoint that nothing keeps, and the chunks it stands on."""
        if self._is_due_read:
            self._note_end(event)
        self.store_path(record, plan, boundary // self.chunk_tokens, now)
        for node in plan.record.nodes:
            self._arrived(node, plan, now)
        found = self.index.nodes.get(event.hashes[boundary // self.hash_tokens - 1])
        if found is not None and found.checkpoint is None:
            is_decoded = boundary > event.num_prompt_tokens
            plan.add_checkpoint(found, is_decoded=is_decoded)

    def _note_end(self, event: TokensComputed) -> None:
        """The whole prompt is stored; one of its last chunks is in every sample."""
        stride, last = self.index.hashes_per_chunk, event.num_prompt_tokens - 1
        deepest = min(last // self.chunk_tokens, len(event.hashes) // stride)
        for depth in range(deepest, max(deepest - self._chunks_per_sample, 0), -1):
            self._due.append(event.hashes[depth * stride - 1])

    def _store_waiting(
        self, chunk: WaitingChunk, cached: CachedBlocks, now: float
    ) -> StorePlan:
        """Store the path down to a threatened chunk; count it lost if that fails."""
        index = self.index
        tables = self.waiting.tables(chunk, cached)
        plan = StorePlan(index, chunk.hashes, tables, self.counters, chunk.origin)
        if self._is_outdated(chunk):
            self.waiting.remove(chunk)
            return plan
        if chunk.depth > self._most_chunks:
            self._give_up(chunk)
            return plan
        tip = index.deepest_known(chunk.hashes, chunk.depth)
        path = WaitingPath(tip, chunk, self.waiting.behind(tip.depth, chunk))
        self._store_through(self._admit_path(path, now), path, plan, now)
        self.waiting.remove(chunk)
        return plan

    def _admit_path(self, path: WaitingPath, now: float) -> int:
        """How deep a path comes in; what is deeper waits no longer."""
        if not (self.index.order.live.is_selective and path.is_weighed(now)):
            return path.chunk.depth
        newcomer = path.newcomer(self.index.hashes_per_chunk, now)
        end = self.newcomers.admit(newcomer)
        for chunk in reversed(path.waiting):
            if chunk.depth > end:
                self.waiting.remove(chunk)
                self.index.departures.note(chunk.key, MissReason.OUTRANKED)
        return end

    def _store_through(
        self, end: int, path: WaitingPath, plan: StorePlan, now: float
    ) -> None:
        """Store a path down to a depth; what ended behind it has used it, too."""
        index, node = self.index, path.tip
        index.pin(path.tip)
        for stop in path.stops(end):
            added = plan.add_path(node, stop)
            for node in added:
                self._arrived(node, plan, now)
            if node.depth < stop:
                break
        if node.depth == end:
            self._arrived(node, plan, now)
            for time in path.uses_behind(end):
                index.count_use(node, time)
            index.touch(node, now)
        elif end == path.chunk.depth:
            self._lose(path.chunk, plan.refusal or MissReason.LOST)
        index.unpin(path.tip)

    def _give_up(self, chunk: WaitingChunk) -> None:
        """A path that host memory cannot hold with what resuming at its end takes.

        A part of it without a resume point would push out everything for nothing; so
        only what lies above one that fits goes on waiting.
        """
        stride = self.index.hashes_per_chunk
        for depth in range(chunk.depth, 0, -1):
            waiting = self.waiting.chunks.get(chunk.hashes[depth * stride - 1])
            if waiting is None:
                continue
            if waiting.has_checkpoint and depth <= self._most_chunks:
                break
            self.waiting.remove(waiting)
            self._lose(waiting, MissReason.NO_ROOM)

    def _is_outdated(self, chunk: WaitingChunk) -> bool:
        """Whether the hash list was cut or changed under it, as streams may do."""
        last = chunk.depth * self.index.hashes_per_chunk - 1
        return last >= len(chunk.hashes) or chunk.hashes[last] != chunk.key

    def _arrived(self, node: Node, plan: StorePlan, now: float) -> None:
        """A node is stored; so is the checkpoint that waits on it, and its uses."""
        chunk = self.waiting.chunks.get(node.key)
        if chunk is None:
            return
        if chunk.has_checkpoint and node.checkpoint is None:
            plan.add_checkpoint(node)
        if chunk.keep is not None and chunk.keep.until > now:
            lease_path(self.index, node, chunk.keep)
        for time in chunk.uses:
            self.index.count_use(node, time)
        self.waiting.remove(chunk)

    def _lose(self, chunk: WaitingChunk, reason: MissReason) -> None:
        self.counters.lost_chunks += 1
        if chunk.key not in self.index.nodes:  # else its checkpoint alone is lost
            self.index.departures.note(chunk.key, reason)

    def _sweep(self, cached: CachedBlocks) -> None:
        """Count what the device lost without having been seen near its queue's head."""
        for chunk in list(self.waiting.chunks.values()):
            if not all(cached.find(group, key) for group, key in chunk.blocks):
                self.waiting.remove(chunk)
                self._lose(chunk, MissReason.LOST)
        self._sweep_at = max(_SWEEP_CHUNKS, 2 * len(self.waiting.chunks))


def _most_chunks(index: Index) -> float:
    """Chunks of the longest path that is of use; any part is where chunks suffice."""
    rules, arena_bytes = index.rules, index.cells.slabs.geometry.arena_bytes
    checkpoint_bytes, _ = rules.largest_checkpoint
    if not (checkpoint_bytes and rules.chunk_bytes):
        return math.inf
    return (arena_bytes - checkpoint_bytes) // rules.chunk_bytes
