"""Cells' changes as blocks' events: as few of them as there are stretches of blocks.

A cell holds one or a few blocks, and a step makes hundreds of them loadable. Blocks
that follow each other in one request's table are told of in one event, as the device
does it, and so are all blocks of a group that leave. What is worked out for each block
is its hash, and how many cells hold it.

    changes   +A0 +B0 +A1 +B1 -C7 -C6 +A2        letters: groups, numbers: blocks
    events    A[0, 1]  B[0, 1]  -C[7, 6]  A[2]
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm.distributed.kv_events import BlockStored, KVCacheEvent
    from vllm.v1.core.kv_cache_utils import ExternalBlockHash

    from kvcellar.index.announcements import Change
    from kvcellar.integrations.vllm.kv_events import GroupEvents, RequestContent


class HostBlocks:
    """What is told of one cell: some blocks of one request in one group.

    Args:
        content: the request's; let go when the blocks have been told of.
        group: whose blocks they are.
        blocks: their places in the request's block table.
    """

    __slots__ = ("_hashes", "blocks", "content", "group")

    def __init__(
        self, content: "RequestContent", group: "GroupEvents", blocks: range
    ) -> None:
        self.content: RequestContent | None = content
        self.group = group
        self.blocks = blocks
        self._hashes: list[ExternalBlockHash] | None = None

    @property
    def group_id(self) -> int:
        """The engine's id of the group."""
        return self.group.group_id

    @property
    def hashes(self) -> "list[ExternalBlockHash]":
        """The blocks' hashes as consumers know them."""
        if self._hashes is None:
            assert self.content is not None
            self._hashes = self.content.hashes(self.group, self.blocks)
        return self._hashes


class _Run:
    """Blocks that follow each other and are announced together."""

    __slots__ = ("content", "end", "first", "group", "hashes")

    def __init__(
        self, content: "RequestContent", group: "GroupEvents", first: int
    ) -> None:
        self.content, self.group = content, group
        self.first = self.end = first
        self.hashes: list[ExternalBlockHash] = []

    def add(self, hashes: "list[ExternalBlockHash]") -> None:
        """These blocks follow."""
        self.hashes += hashes
        self.end += len(hashes)

    def event(self) -> "BlockStored":
        """The event that announces them."""
        return self.content.stored(self.group, range(self.first, self.end), self.hashes)


class _Pending:
    """Events that are not finished: either some runs, or what leaves, by group.

    Runs keep the order in which they were begun, and a run is only ever continued by
    the block behind its last one: so a block's parent is announced before it.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._latest: dict[tuple[int, int], _Run] = {}
        self._gone: dict[int, tuple[GroupEvents, list[ExternalBlockHash]]] = {}
        self.events: list[KVCacheEvent] = []

    def store(
        self, content: "RequestContent", blocks: HostBlocks, num_known: int
    ) -> None:
        """All but the first so many blocks are announced."""
        if self._gone:
            self.finish()
        group, first = blocks.group, blocks.blocks.start + num_known
        key = (id(content), group.group_id)
        run = self._latest.get(key)
        if run is None or run.end != first:
            run = self._latest[key] = _Run(content, group, first)
            self._runs.append(run)
        run.add(blocks.hashes[num_known:] if num_known else blocks.hashes)

    def remove(self, group: "GroupEvents", hashes: "list[ExternalBlockHash]") -> None:
        """These blocks are taken back."""
        if self._runs:
            self.finish()
        _, gone = self._gone.setdefault(group.group_id, (group, []))
        gone += hashes

    def finish(self) -> None:
        """Write all events that were begun."""
        self.events += [run.event() for run in self._runs]
        self.events += [group.removed(gone) for group, gone in self._gone.values()]
        self._runs, self._latest, self._gone = [], {}, {}


class EventRuns:
    """How many cells hold each block; turns cells' changes into blocks' events."""

    def __init__(self) -> None:
        self._num_cells: dict[tuple[int, ExternalBlockHash], int] = {}

    def events(self, changes: "Iterable[Change]") -> "list[KVCacheEvent]":
        """The events that changes of cells give rise to, in order."""
        pending = _Pending()
        for change in changes:
            blocks = change.content
            assert isinstance(blocks, HostBlocks)
            if change.is_stored:
                self._stored(blocks, pending)
            else:
                self._removed(blocks, pending)
        pending.finish()
        return pending.events

    def _stored(self, blocks: HostBlocks, pending: _Pending) -> None:
        """Announce what no other cell holds yet: a tail, since hashes are prefixes."""
        num_known, num_cells, group_id = 0, self._num_cells, blocks.group_id
        for block_hash in blocks.hashes:
            key = (group_id, block_hash)
            count = num_cells.get(key, 0)
            num_cells[key] = count + 1
            num_known += bool(count)
        content, blocks.content = blocks.content, None
        assert content is not None  # a cell is announced once
        if num_known < len(blocks.blocks):
            pending.store(content, blocks, num_known)

    def _removed(self, blocks: HostBlocks, pending: _Pending) -> None:
        gone, num_cells, group_id = [], self._num_cells, blocks.group_id
        for block_hash in blocks.hashes:
            key = (group_id, block_hash)
            num_cells[key] -= 1
            if not num_cells[key]:
                del num_cells[key]
                gone.append(block_hash)
        if gone:
            pending.remove(blocks.group, gone)
