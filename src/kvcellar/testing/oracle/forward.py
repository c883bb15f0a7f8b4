"""A simulated forward pass: all requests of a step at once, as a batch runs.

Within a layer a real batch first writes the new entries of all its requests and then
reads, so writes come first here too: a step that overwrites what another request in it
reads shows at once. A running state is read before it is written in its place.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvcellar.attention.reference import keeps_running_state
from kvcellar.layout.groups import GroupLayout
from kvcellar.testing.oracle.device import Numbers, SimulatedDevice, Views
from kvcellar.testing.oracle.rows import Row, Rows

THOROUGH_RATE = 0.05
"""Chance that all a step reads is checked, and not just a few entries."""

FEW_UNITS = 6
"""Entries that are checked per layer, group and step otherwise."""


class WrongBytesError(AssertionError):
    """A step would have read bytes that its prefix does not demand."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a step computes of one request: tokens ``[first, end)``."""

    request_id: str
    row: Row
    first: int
    end: int


@dataclass(slots=True)
class Places:
    """Entries of several requests: the slot and the unit of each."""

    slots: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def add_span(self, slot: int, first: int, end: int) -> None:
        """Units ``[first, end)`` of a request."""
        if end == first + 1:
            self.slots.append(slot)
            self.units.append(first)
        elif end > first:
            self.spans.append((slot, first, end))

    def add_few(self, slot: int, first: int, end: int, where: float) -> None:
        """Both ends of ``[first, end)``, and three units in between.

        Args:
            where: in ``[0, 1)``; decides which three, each as likely as any other.
        """
        count = end - first
        if count <= FEW_UNITS:
            self.add_span(slot, first, end)
            return
        place, third = int(where * count), count // 3
        middle = [first + (place + shift) % count for shift in (0, third, 2 * third)]
        self.units += [first, end - 2, end - 1, *middle]
        self.slots += [slot] * FEW_UNITS

    def arrays(self) -> tuple[Numbers, Numbers]:
        """Slots and units, **[n]** each."""
        slots = np.array(self.slots, dtype=np.int64)
        units = np.array(self.units, dtype=np.int64)
        if not self.spans:
            return slots, units
        return (
            np.concatenate([slots, *(np.full(e - f, s) for s, f, e in self.spans)]),
            np.concatenate([units, *(np.arange(f, e) for _, f, e in self.spans)]),
        )


class Forward:
    """Writes what a step computes, and compares what it reads with its prefix.

    Args:
        groups: kinds and spans by engine group id; the others are scratch.
        device: the simulated cache.
        rows: the requests' prefixes and block tables.
        rng: picks the places to check.
        first_read: first token that computing a token reads, by group.

    Attributes:
        num_units_checked: entries compared so far, each in every layer.
    """

    def __init__(
        self,
        groups: Mapping[int, GroupLayout],
        device: SimulatedDevice,
        rows: Rows,
        rng: random.Random,
        first_read: Callable[[GroupLayout, int], int],
    ) -> None:
        states = {i: g for i, g in groups.items() if keeps_running_state(g)}
        self._states = states
        self._entries = {i: g for i, g in groups.items() if i not in states}
        self._scratch = set(range(len(device.group_pages))) - set(groups)
        self._block_tokens = device.block_tokens
        self._views_by_cut: list[list[tuple[tuple[int, int], Views]]] = [
            list(views.items()) for views in device.views_by_cut
        ]
        self._device = device
        self._rows = rows
        self._rng = rng
        self._first_read = first_read
        self.num_units_checked = 0

    def run(self, work: Sequence[Work]) -> None:
        """Compute one step.

        Raises:
            WrongBytesError: a block that the step reads is not what it must be.
        """
        for group_id, group in self._states.items():
            self._check_states(group_id, group, work)
        for group_id, group in self._states.items():
            self._write_states(group_id, group, work)
        for group_id in self._scratch:
            self._scribble(group_id, work)
        for group_id in self._entries:
            self._write(group_id, work)
        dice = [(self._is_thorough(one.row), self._rng.random()) for one in work]
        for group_id, group in self._entries.items():
            self._check(group_id, group, work, dice)

    def _is_thorough(self, row: Row) -> bool:
        return row.is_fresh or self._rng.random() < THOROUGH_RATE

    # -- entries per token ---------------------------------------------------------

    def _write(self, group_id: int, work: Sequence[Work]) -> None:
        """Fill the entries that the step completes."""
        for cut, views in self._views_by_cut[group_id]:
            tokens_per_unit, num_units = cut
            places = Places()
            for one in work:
                first, end = one.first // tokens_per_unit, one.end // tokens_per_unit
                places.add_span(one.row.slot, first, end)
            slots, units = places.arrays()
            blocks = self._rows.tables[group_id][slots, units // num_units]
            kept = blocks > 0
            if not kept.all():
                slots, units, blocks = slots[kept], units[kept], blocks[kept]
            if len(slots):
                values = self._rows.values[slots, (units + 1) * tokens_per_unit - 1]
                for view, seeds in views:
                    view.write(blocks, units % num_units, values, seeds)

    def _check(
        self,
        group_id: int,
        group: GroupLayout,
        work: Sequence[Work],
        dice: Sequence[tuple[bool, float]],
    ) -> None:
        """Compare what computing each request's first token reads with its prefix."""
        lows = [self._first_read(group, one.first) for one in work]
        for cut, views in self._views_by_cut[group_id]:
            tokens_per_unit, num_units = cut
            places = Places()
            for one, low, (is_thorough, where) in zip(work, lows, dice, strict=True):
                first, end = -(-low // tokens_per_unit), one.first // tokens_per_unit
                if is_thorough:
                    places.add_span(one.row.slot, first, end)
                else:
                    places.add_few(one.row.slot, first, end, where)
            slots, units = places.arrays()
            if not len(slots):
                continue
            blocks = self._rows.tables[group_id][slots, units // num_units]
            values = self._rows.values[slots, (units + 1) * tokens_per_unit - 1]
            for view, seeds in views:
                is_wrong = view.wrong(blocks, units % num_units, values, seeds)
                self.num_units_checked += len(units)
                if is_wrong.any():
                    self._complain(group_id, work, lows, slots, slots[is_wrong])

    def _complain(
        self,
        group_id: int,
        work: Sequence[Work],
        lows: Sequence[int],
        slots: Numbers,
        wrong_slots: Numbers,
    ) -> None:
        slot = wrong_slots[0]
        one, low = next(
            (one, low)
            for one, low in zip(work, lows, strict=True)
            if one.row.slot == slot
        )
        raise WrongBytesError(
            f"request {one.request_id} computes token {one.first}: "
            f"{(wrong_slots == slot).sum()} of {(slots == slot).sum()} entries of "
            f"group {group_id} in tokens [{low}, {one.first}) are not what its prefix "
            "demands"
        )

    # -- running states ------------------------------------------------------------

    def _check_states(
        self, group_id: int, group: GroupLayout, work: Sequence[Work]
    ) -> None:
        """The running state lies in the block of the last computed token."""
        resumed = [one for one in work if one.first]
        if not resumed:
            return
        slots, lasts = _slots_and_lasts([(o.row.slot, o.first) for o in resumed])
        blocks = self._rows.tables[group_id][slots, lasts // group.tokens_per_block]
        values = self._rows.values[slots, lasts]
        for view, seeds in self._device.group_pages[group_id]:
            self.num_units_checked += len(slots)
            is_wrong = view.wrong(blocks, np.zeros_like(blocks), values, seeds)
            if is_wrong.any():
                one = resumed[int(is_wrong.argmax())]
                raise WrongBytesError(
                    f"request {one.request_id} at token {one.first} resumes group "
                    f"{group_id} from a state that is not what its prefix demands"
                )

    def migrate_states(self, work: Sequence[Work]) -> None:
        """Before the forward, a state is copied to the block where it will be kept.

        Source: preprocess_state, v1/worker/gpu/model_states, and preprocess_mamba,
        v1/worker/mamba_utils.py, vLLM 0.32.
        """
        for group_id, group in self._states.items():
            for one in work:
                table = self._rows.tables[group_id][one.row.slot]
                source, target = (
                    table[(end - 1) // group.tokens_per_block]
                    for end in (one.first, one.end)
                )
                if one.first and source != target:
                    self._device.copy_blocks([source], [target], group_id)

    def _write_states(
        self, group_id: int, group: GroupLayout, work: Sequence[Work]
    ) -> None:
        """The state after the last token goes to that token's block."""
        slots, lasts = _slots_and_lasts([(one.row.slot, one.end) for one in work])
        blocks = self._rows.tables[group_id][slots, lasts // group.tokens_per_block]
        values = self._rows.values[slots, lasts]
        for view, seeds in self._device.group_pages[group_id]:
            view.write(blocks, np.zeros_like(blocks), values, seeds)

    # -- scratch -------------------------------------------------------------------

    def _scribble(self, group_id: int, work: Sequence[Work]) -> None:
        """What is never found again is written too: whoever copies it is wrong."""
        table, size = self._rows.tables[group_id], self._block_tokens[group_id]
        places = [
            (one.row.slot, min((one.end - 1) // size, one.row.num_blocks[group_id] - 1))
            for one in work
            if one.row.num_blocks[group_id]
        ]
        if places:
            slots, columns = zip(*places, strict=True)
            blocks = table[list(slots), list(columns)]
            for view, _ in self._device.group_pages[group_id]:
                view.pages[blocks[blocks > 0]] = self._rng.randrange(256)


def _slots_and_lasts(ends: Sequence[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    """Slot, and the last token of ``[0, end)``, of each request."""
    pairs = np.array(ends, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1] - 1
