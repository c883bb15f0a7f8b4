"""What a request finds, takes and leaves, on the device and in host memory.

Knows nothing of time but the stamp it is given; ``server`` decides when things happen.
"""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcellar.core import events
from kvcellar.replay.device import DeviceCache
from kvcellar.replay.device_leaves import DeviceNode
from kvcellar.replay.device_rows import DeviceRows
from kvcellar.replay.host_base import Host, HostJob, StepBlocks
from kvcellar.replay.keys import PrefixKeys
from kvcellar.replay.lazy import DeviceContents
from kvcellar.replay.outcome import Outcome
from kvcellar.replay.trace import TraceRequest

if TYPE_CHECKING:
    from array import array


@dataclass(slots=True, eq=False)
class Running:
    """A request that has its room.

    Attributes:
        node: deepest chunk that it uses on the device; pinned.
        kept: boundaries at which the device keeps its windows.
        num_rows: rows reserved for it that hold no chunk yet.
        computed: tokens that are there.
        load: the load it waits for, if any.
    """

    request: TraceRequest
    request_id: str
    keys: PrefixKeys
    tables: StepBlocks
    node: DeviceNode
    kept: frozenset[int]
    num_rows: int = 0
    computed: int = 0
    load: HostJob | None = None


class Memory:
    """The device's cache, host memory, and the requests that use them.

    Args:
        host: host memory with the serving planner; it also knows the layout.
        device: the device's cache; None for one that keeps nothing.
        rows: what things take on the device.
        block_tokens: tokens per prefix id of the trace.
        outcome: counts what was found and moved.
    """

    def __init__(
        self,
        host: Host,
        device: DeviceCache | None,
        rows: DeviceRows,
        block_tokens: int,
        outcome: Outcome,
    ) -> None:
        layout = host.layout
        self.host, self.device, self.rows = host, device, rows
        self.outcome = outcome
        self.unit = layout.chunk_tokens
        self._hash_tokens = layout.hash_block_tokens
        self._stride = self.unit // self._hash_tokens
        self._block_tokens = block_tokens
        self._root = DeviceNode(b"", None)
        self._private = itertools.count(-1, -1)
        self._contents: DeviceContents | None = None
        self._threatened: list[HostJob] = []
        if device is not None and host.is_lazy:
            self._contents = DeviceContents(device, layout, host.rules)
            device.on_evict = self._about_to_evict

    # -- coming --------------------------------------------------------------------

    def is_too_long(self, request: TraceRequest) -> bool:
        """Whether the request does not fit onto the empty device."""
        if self.device is None:
            return False
        return not self.rows.fits(request.num_tokens, self.device.num_rows)

    def admit(
        self, request: TraceRequest, request_id: str, now: float
    ) -> Running | None:
        """Find what is held, take room for the rest; None if there is no room."""
        unit, num_tokens = self.unit, request.num_prompt_tokens
        keys = PrefixKeys(self._ids(request), self._block_tokens, self._hash_tokens)
        node, junction = self._root, 0
        if self.device is not None:
            limit = min((num_tokens - 1) // unit, len(keys) // self._stride)
            known = self.device.known(keys, self._stride, max(limit, 0))
            node, junction = self.device.resume_point(known), known.depth * unit
            self.device.touch_tail(node, now)
        local = node.depth * unit
        kept = frozenset({junction, (num_tokens - 1) // unit * unit} - {0, local})
        num_rows = self.rows.needed(request.num_tokens - local, len(kept))
        if not self._reserve(node, num_rows, now):
            return None
        event = events.LookUp(request_id, keys, num_tokens, local)
        external = self.host.look_up(event, now)
        tables = self.host.tables(kept)
        running = Running(request, request_id, keys, tables, node, kept, num_rows)
        running.load = self.host.allocated(request_id, external, tables, now)
        if running.load is None:
            external = 0
        else:
            self.outcome.loaded_bytes += running.load.num_bytes
        running.computed = local + external
        self.outcome.found(num_tokens, local, external)
        return running

    def _reserve(self, node: DeviceNode, num_rows: int, now: float) -> bool:
        if self.device is None:
            return True
        self.device.pin(node)
        if self.device.reserve(num_rows, now):
            return True
        self.device.unpin(node, node.last_use)
        return False

    def _ids(self, request: TraceRequest) -> "array[int]":
        """Prefix ids of prompt and answer; nobody else has those of the answer.

        Nor that of a block that the prompt fills in part, where a chunk ends inside.
        """
        ids = request.blocks[:]
        ids.extend(request.output_blocks)
        total, size = request.num_tokens, self._block_tokens
        end = total // self.unit * self.unit
        for _ in range(max(total // size, -(-end // size)) - len(ids)):
            ids.append(next(self._private))
        return ids

    def take_threatened(self) -> list[HostJob]:
        """Stores of what the device gave away since the last call; lazy mode."""
        taken, self._threatened = self._threatened, []
        return taken

    # -- running -------------------------------------------------------------------

    def loaded(self, running: Running, now: float) -> None:
        """The load has ended: what it brought is on the device."""
        assert running.load is not None
        self.host.done(running.load.job_id, now)
        running.load = None
        self._enter_chunks(running, running.computed)
        if running.computed in running.kept:
            self._keep_tail(running, running.computed, now)

    def compute(self, running: Running, end: int, now: float) -> list[HostJob]:
        """A step computes tokens up to ``end``; what it stores.

        The last token of an answer is sampled and never computed.
        """
        first, running.computed = running.computed, end
        self._enter_chunks(running, end)
        for boundary in sorted(running.kept):
            if first < boundary <= end:
                self._keep_tail(running, boundary, now)
        is_set_aside = self.host.rules.is_overwritten and end % self.unit == 0
        event = events.TokensComputed(
            running.request_id,
            running.keys,
            running.request.num_prompt_tokens,
            first,
            end,
            running.tables,
            (end,) if is_set_aside else (),
        )
        return self.host.computed(event, now)

    def release(self, running: Running, now: float) -> None:
        """The request has ended; the device keeps what it can."""
        self.host.finished(running.request_id, now)
        if self.device is not None:
            self.device.unpin(running.node, now)
            self.device.give_back(running.num_rows)

    def _enter_chunks(self, running: Running, end: int) -> None:
        if self.device is None:
            return
        stride = self._stride
        num_chunks = min(end // self.unit, len(running.keys) // stride)
        first = (running.node.depth + 1) * stride - 1
        keys = running.keys[first : num_chunks * stride : stride]
        running.node, num_new = self.device.add_path(running.node, keys)
        running.num_rows -= num_new * self.rows.chunk

    def _keep_tail(self, running: Running, boundary: int, now: float) -> None:
        """The engine keeps the windows at a boundary that a step has passed."""
        if self.device is None or not self.rows.tail:
            return
        nodes = tuple(
            self.device.nodes[running.keys[served // self._hash_tokens - 1]]
            for served in self.host.served_by(boundary)
        )
        if self.device.keep_tail(nodes, now):
            running.num_rows -= self.rows.tail
            if self._contents is not None:
                self._contents.tail_kept(nodes[0], running.keys, boundary)

    def _about_to_evict(self, node: DeviceNode, now: float, *, is_tail: bool) -> None:
        """Lazy mode: store what the device gives away, with all it stands on."""
        assert self._contents is not None
        blocks = self._contents.blocks_of(node, is_tail=is_tail)
        self._threatened += self.host.threatened(blocks, self._contents, now)
        if is_tail:
            self._contents.tail_dropped(node)
