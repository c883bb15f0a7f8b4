"""Cells' changes as blocks' events: as few of them as there are runs of blocks.

A cell holds one or a few blocks, and a step makes thousands of them loadable. Blocks
that follow each other in one request's table are told of in one event, as the device
does it, and so are all blocks of a group that leave.

    changes   +A0 +B0 +A1 +B1 -C7 -C6 +A2        letters: groups, numbers: blocks
    events    A[0, 1]  B[0, 1]  -C[7, 6]  A[2]

Groups whose blocks have the same hashes are a *family*: all full groups with blocks of
one size, or all windows and states. What comes and goes in several of them alike is
worked out once, and their events share their lists.

What is done for each cell is to sort it by group, and to write its hashes on it, by
which it will be taken back; so a cell that was told of keeps nothing of its request.
All else is done for runs. A step in which hundreds of requests decode has as many runs
of one block, so a run must not cost much either: it is two places in a list of cells.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from kvcellar.integrations.vllm.held_blocks import HeldBlocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm.distributed.kv_events import KVCacheEvent

    from kvcellar.index.announcements import Changes
    from kvcellar.index.cells import Cell
    from kvcellar.integrations.vllm.event_content import RequestContent
    from kvcellar.integrations.vllm.event_groups import GroupEvents

    _Member = tuple[GroupEvents, int, list[Cell]]  # a group, its bit, its cells


class EventRuns:
    """Turns cells' changes into blocks' events.

    Args:
        groups: by layout position.
    """

    def __init__(self, groups: "Sequence[GroupEvents]") -> None:
        self._groups = groups
        families: dict[object, _Family] = {}
        self._families = [
            families.setdefault(group.family, _Family(group)) for group in groups
        ]

    def events(self, changes: "Iterable[Changes]") -> "list[KVCacheEvent]":
        """The events that changes of cells give rise to, in order.

        In order within each group, that is: no group's blocks are another's parents.
        """
        events: list[KVCacheEvent] = []
        for stored, removed in changes:
            for family, members in self._alike(stored):
                family.store(members, events)
            for family, members in self._alike(removed):
                family.remove(members, events)
        return events

    def _alike(self, cells: "list[Cell]") -> "list[tuple[_Family, list[_Member]]]":
        """Cells by group; groups of one family with the same notices stand together."""
        found: list[tuple[_Family, list[_Member]]] = []
        last_family, last_notices = None, []
        for position, of_group in _by_position(cells).items():
            family = self._families[position]
            notices = [cell.notice for cell in of_group]
            member = (self._groups[position], 1 << position, of_group)
            if family is last_family and notices == last_notices:
                found[-1][1].append(member)
            else:
                found.append((family, [member]))
                last_family, last_notices = family, notices
        return found


class _Family:
    """Groups whose blocks have the same hashes.

    Args:
        group: one of them.
    """

    def __init__(self, group: "GroupEvents") -> None:
        self._block_tokens = group.block_tokens
        self._blocks_per_cell = group.blocks_per_cell
        self._held = HeldBlocks()

    def store(self, members: "list[_Member]", events: "list[KVCacheEvent]") -> None:
        """Cells can be loaded; a block's parent comes before it.

        Args:
            members: groups that got the same blocks.
            events: take in what followers are to be told.
        """
        first_group, _, first_cells = members[0]
        bits = sum(bit for _, bit, _ in members)
        for content, first, start, stop in _runs(first_cells, self._blocks_per_cell):
            end = first + (stop - start) * self._blocks_per_cell
            event = content.stored(first_group, first, end)
            hashes = event.block_hashes
            for _, _, cells in members:
                self._sign(cells, start, hashes)
            if self._held.add_new(hashes, bits):
                events.append(event)
                events += [group.stored_too(event) for group, _, _ in members[1:]]
            else:
                self._store_rest(members, content, first, hashes, events)

    def _store_rest(
        self,
        members: "list[_Member]",
        content: "RequestContent",
        first: int,
        hashes: "Sequence[Any]",
        events: "list[KVCacheEvent]",
    ) -> None:
        """Tell each group of those blocks that it did not hold."""
        for group, bit, _ in members:
            events += [
                content.stored(group, first + new.start, first + new.stop)
                for new in self._held.add(hashes, bit)
            ]

    def _sign(self, cells: "list[Cell]", start: int, hashes: "Sequence[Any]") -> None:
        """Write hashes on the cells from a place on, where their request stood."""
        num_blocks = self._blocks_per_cell
        if num_blocks == 1:
            for place, block_hash in enumerate(hashes, start):
                cells[place].notice = block_hash
            return
        for number in range(len(hashes) // num_blocks):
            of_cell = hashes[number * num_blocks : (number + 1) * num_blocks]
            cells[start + number].notice = of_cell

    def remove(self, members: "list[_Member]", events: "list[KVCacheEvent]") -> None:
        """Cells are gone; take back what no other cell holds.

        Args:
            members: groups that lose the same blocks.
            events: take in what followers are to be told.
        """
        hashes: list[Any] = [cell.notice for cell in members[0][2]]
        if self._blocks_per_cell > 1:
            hashes = [one for of_cell in hashes for one in of_cell]
        if self._held.remove_all(hashes, sum(bit for _, bit, _ in members)):
            events += [group.removed(hashes) for group, _, _ in members]
            return
        for group, bit, _ in members:
            gone = self._held.remove(hashes, bit)
            if gone:
                events.append(group.removed(gone))


class _Run(NamedTuple):
    """Cells ``[start, stop)`` of a list, whose blocks follow each other."""

    content: "RequestContent"
    first_block: int
    start: int
    stop: int


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
                runs.append(_Run(run_content, first_block, start, place))
            start, run_content, first_block = place, content, block
        end = block + num_blocks
    if run_content is not None:
        runs.append(_Run(run_content, first_block, start, len(cells)))
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
