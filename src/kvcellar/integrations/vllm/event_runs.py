"""Cells' changes as blocks' events: as few of them as there are runs of blocks.

A cell holds one or a few blocks, and a step makes thousands of them loadable. Blocks
that follow each other in one request's table are told of in one event, as the device
does it, and so are all blocks of a group that leave.

    changes   +A0 +B0 +A1 +B1 -C7 -C6 +A2        letters: groups, numbers: blocks
    events    A[0, 1]  B[0, 1]  -C[7, 6]  A[2]

What is done for each cell is to sort it by group, and to write its hashes on it, by
which it will be taken back; so a cell that was told of keeps nothing of its request.
All else is done for runs, and groups with blocks of one size share what they say of the
same blocks. A step in which hundreds of requests decode has as many runs of one block,
so a run must not cost much either: it is two places in a list of cells.
"""

from typing import TYPE_CHECKING, Any

from kvcellar.integrations.vllm.held_blocks import HeldBlocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm.distributed.kv_events import BlockStored, KVCacheEvent

    from kvcellar.index.announcements import Changes
    from kvcellar.index.cells import Cell
    from kvcellar.integrations.vllm.event_content import RequestContent
    from kvcellar.integrations.vllm.event_groups import GroupEvents

    _Latest = dict[RequestContent, tuple[int, int, BlockStored]]
    _Run = tuple[RequestContent, int, list[Cell]]  # with the place of the first block


class EventRuns:
    """Turns cells' changes into blocks' events.

    Args:
        groups: by layout position.
    """

    def __init__(self, groups: "Sequence[GroupEvents]") -> None:
        self._of_groups = [_GroupRuns(group) for group in groups]

    def events(self, changes: "Iterable[Changes]") -> "list[KVCacheEvent]":
        """The events that changes of cells give rise to, in order.

        In order within each group, that is: no group's blocks are another's parents.
        """
        events: list[KVCacheEvent] = []
        for stored, removed in changes:
            latest: _Latest = {}
            for position, cells in _by_position(stored).items():
                self._of_groups[position].store(cells, latest, events)
            for position, cells in _by_position(removed).items():
                self._of_groups[position].remove(cells, events)
        return events


class _GroupRuns:
    """The changes of one group's cells.

    Args:
        group: whose blocks they hold.
    """

    def __init__(self, group: "GroupEvents") -> None:
        self._group = group
        self._blocks_per_cell = group.blocks_per_cell
        self._held = HeldBlocks()

    def store(
        self, cells: "list[Cell]", latest: "_Latest", events: "list[KVCacheEvent]"
    ) -> None:
        """These cells can be loaded; a block's parent comes before it.

        Args:
            latest: what was said last of each request, ``[first, end)`` and the event.
            events: take in what followers are to be told.
        """
        group, size = self._group, self._group.block_tokens
        for content, first, run in _runs(cells, self._blocks_per_cell):
            end = first + len(run) * self._blocks_per_cell
            said = latest.get(content)
            if said and said[:2] == (first, end) and said[2].block_size == size:
                event = group.stored_too(said[2])
            else:
                event = content.stored(group, first, end)
                latest[content] = first, end, event
            hashes = event.block_hashes
            self._sign(run, hashes)
            if self._held.add_new(hashes):
                events.append(event)
            else:
                events += [
                    content.stored(group, first + new.start, first + new.stop)
                    for new in self._held.add(hashes)
                ]

    def _sign(self, run: "list[Cell]", hashes: "list[Any]") -> None:
        """Write each cell's hashes on it, in the place of its request."""
        num_blocks = self._blocks_per_cell
        if num_blocks == 1:
            for place, cell in enumerate(run):
                cell.notice = hashes[place]
            return
        for place, cell in enumerate(run):
            cell.notice = hashes[place * num_blocks : (place + 1) * num_blocks]

    def remove(self, cells: "list[Cell]", events: "list[KVCacheEvent]") -> None:
        """These cells are gone; take back what no other cell holds."""
        hashes: list[Any] = [cell.notice for cell in cells]
        if self._blocks_per_cell > 1:
            hashes = [one for of_cell in hashes for one in of_cell]
        gone = self._held.remove(hashes)
        if gone:
            events.append(self._group.removed(gone))


def _runs(cells: "list[Cell]", num_blocks: int) -> "list[_Run]":
    """Cells of so many blocks each, cut where a block does not follow the last."""
    runs: list[_Run] = []
    start = end = first_block = 0
    run_content: RequestContent | None = None
    for place, cell in enumerate(cells):
        notice: Any = cell.notice  # the index does not know what it carries
        content, block = notice
        if content is not run_content or block != end:
            if run_content is not None:
                runs.append((run_content, first_block, cells[start:place]))
            start, run_content, first_block = place, content, block
        end = block + num_blocks
    if run_content is not None:
        runs.append((run_content, first_block, cells[start:]))
    return runs


def _by_position(cells: "Iterable[Cell]") -> "dict[int, list[Cell]]":
    found: dict[int, list[Cell]] = {}
    for cell in cells:
        position = cell.position
        if position in found:
            found[position].append(cell)
        else:
            found[position] = [cell]
    return found
