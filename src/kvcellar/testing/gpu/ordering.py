"""Each ordering rule of the design's section 8 as a play that goes wrong without it.

A play says whether every byte was what it must be. Played on a driver that forgets what
the rule needs, it must say no at least where the accelerator is late enough. Model work
behind a job goes through the blocks backwards, so that it meets copies still to come.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvcellar.testing.gpu.faults import (
    ForwardingDriver,
    HalfFailing,
    Hasty,
    Unfenced,
    Unordered,
)
from kvcellar.testing.gpu.machine import Machine
from kvcellar.testing.gpu.rig import Rig, Shape

OLD, NEW = 1, 2


class Play(NamedTuple):
    """One rule.

    Attributes:
        rule: what holds, in words.
        run: plays it; whether all bytes were right.
        fault: a driver that forgets what the rule needs.
    """

    rule: str
    run: Callable[[Rig], bool]
    fault: type[ForwardingDriver]


def store_after_the_step_that_wrote(rig: Rig) -> bool:
    """A store submitted behind a late step holds what the step wrote."""
    blocks, cells = _many(rig)
    for block in blocks:
        rig.write(0, block, OLD)
    rig.machine.num_wrong()
    rig.machine.delay()
    for block in blocks:
        rig.write(0, block, NEW)
    job = rig.store(0, blocks, cells)
    is_good = rig.result(job).error is None
    return is_good and all(rig.host_content(0, cell) == NEW for cell in cells)


def load_after_queued_reads(rig: Rig) -> bool:
    """A late step that still reads a block finds it as it was before the load."""
    blocks, cells = _many(rig)
    _fill_host(rig, blocks, cells, NEW)
    for block in blocks:
        rig.write(0, block, OLD)
    rig.machine.num_wrong()
    rig.machine.delay()
    for block in blocks:
        rig.compare(0, block, OLD)
    job = rig.load(0, blocks, cells)
    return rig.result(job).error is None and not rig.machine.num_wrong()


def load_after_queued_writes(rig: Rig) -> bool:
    """A late step that still writes a block does not overwrite what is loaded."""
    blocks, cells = _many(rig)
    _fill_host(rig, blocks, cells, NEW)
    rig.machine.delay()
    for block in blocks:
        rig.write(0, block, OLD)
    job = rig.load(0, blocks, cells)
    is_good = rig.result(job).error is None
    for block in blocks:
        rig.compare(0, block, NEW)
    return is_good and not rig.machine.num_wrong()


def load_reported_when_ended(rig: Rig) -> bool:
    """A step that begins after the report reads what was loaded."""
    blocks, cells = _many(rig)
    _fill_host(rig, blocks, cells, NEW)
    for block in blocks:
        rig.write(0, block, OLD)
    rig.machine.num_wrong()
    job = rig.load(0, blocks, cells)
    is_good = rig.result(job).error is None
    for block in reversed(blocks):
        rig.compare(0, block, NEW)
    return is_good and not rig.machine.num_wrong()


def store_reported_when_ended(rig: Rig) -> bool:
    """Host memory holds the bytes when the store is reported."""
    blocks, cells = _many(rig)
    _fill_host(rig, blocks, cells, OLD)
    for block in blocks:
        rig.write(0, block, NEW)
    job = rig.store(0, blocks, cells)
    is_good = rig.result(job).error is None
    return is_good and all(rig.host_content(0, cell) == NEW for cell in cells)


def block_reused_after_its_copy(rig: Rig) -> bool:
    """A block that a request gave up is written again only after its store ended."""
    blocks, cells = _many(rig)
    for block in blocks:
        rig.write(0, block, NEW)
    job = rig.store(0, blocks, cells)
    is_good = rig.result(job).error is None
    for block in reversed(blocks):
        rig.write(0, block, OLD)
    rig.machine.num_wrong()
    rig.machine.settle()
    return is_good and all(rig.host_content(0, cell) == NEW for cell in cells)


def load_after_the_store_it_reads(rig: Rig) -> bool:
    """A load planned behind a store reads what the store wrote."""
    blocks, cells = _many(rig)
    target = rig.shape.num_blocks - 1
    _fill_host(rig, blocks, cells, OLD)
    rig.write(0, target, OLD)
    for block in blocks:
        rig.write(0, block, NEW)
    rig.machine.num_wrong()
    rig.store(0, blocks, cells)
    job = rig.load(0, [target], cells[-1:])
    is_good = rig.result(job).error is None
    rig.compare(0, target, NEW)
    return is_good and not rig.machine.num_wrong()


def store_after_the_load_it_overwrites(rig: Rig) -> bool:
    """A store planned behind a load does not overwrite what the load reads."""
    blocks, cells = _many(rig)
    source = rig.shape.num_blocks - 1
    _fill_host(rig, blocks, cells, NEW)
    for block in (*blocks, source):
        rig.write(0, block, OLD)
    rig.machine.num_wrong()
    load = rig.load(0, blocks, cells)
    store = rig.store(0, [source], cells[-1:])
    is_good = rig.result(load).error is None and rig.result(store).error is None
    for block in blocks:
        rig.compare(0, block, NEW)
    return is_good and not rig.machine.num_wrong()


def move_after_the_store_it_reads(rig: Rig) -> bool:
    """A cell is moved after the store that fills it, and loaded from its new place."""
    blocks, cells = _many(rig)
    _fill_host(rig, blocks, cells, OLD)
    for block in blocks:
        rig.write(0, block, NEW)
    rig.machine.num_wrong()
    per_cell = rig.geometry.blocks_per_cell[0]
    source, to = cells[-1] // per_cell, rig.num_host_blocks(0) // per_cell - 1
    rig.store(0, blocks, cells)
    rig.move(0, [source], [to])
    job = rig.load(0, [0], [to * per_cell + cells[-1] % per_cell])
    is_good = rig.result(job).error is None
    rig.compare(0, 0, NEW)
    return is_good and not rig.machine.num_wrong()


def failed_load_reported_when_ended(rig: Rig) -> bool:
    """A load that fails halfway is reported only when its first half has ended.

    Its blocks are free after the report, and another request writes them at once.
    """
    blocks, cells = _many(rig)
    _fill_host(rig, blocks, cells, OLD)
    assert isinstance(rig.driver, ForwardingDriver)
    rig.driver.arm()
    job = rig.load(0, blocks, cells)
    has_failed = rig.result(job).error is not None
    for block in reversed(blocks):
        rig.write(0, block, NEW)
    rig.machine.num_wrong()
    rig.machine.settle()
    for block in blocks:
        rig.compare(0, block, NEW)
    return has_failed and not rig.machine.num_wrong()


PLAYS = (
    Play(
        "a store reads after the step that wrote",
        store_after_the_step_that_wrote,
        Unfenced,
    ),
    Play("a load writes after queued reads", load_after_queued_reads, Unfenced),
    Play("a load writes after queued writes", load_after_queued_writes, Unfenced),
    Play("a load is reported when it has ended", load_reported_when_ended, Hasty),
    Play("a store is reported when it has ended", store_reported_when_ended, Hasty),
    Play("a block is reused after its copy", block_reused_after_its_copy, Hasty),
    Play("a load follows the store it reads", load_after_the_store_it_reads, Unordered),
    Play(
        "a store follows the load it overwrites",
        store_after_the_load_it_overwrites,
        Unordered,
    ),
    Play("a move follows the store it reads", move_after_the_store_it_reads, Hasty),
    Play(
        "a failed load is reported when it has ended",
        failed_load_reported_when_ended,
        Hasty,
    ),
)


def play(play: Play, machine: Machine, shape: Shape, *, is_faulty: bool) -> bool:
    """Set a rig up, play, and end it; whether all bytes were right.

    Args:
        is_faulty: with the driver that forgets what the rule needs.
    """
    driver: ForwardingDriver = HalfFailing(machine.driver)
    if is_faulty:
        driver = play.fault(driver)
    rig = Rig(machine, shape, driver=driver)
    try:
        return play.run(rig)
    finally:
        rig.close()


def _many(rig: Rig) -> tuple[list[int], list[int]]:
    """All blocks but the last, and as many host blocks from the first on."""
    count = min(rig.shape.num_blocks, rig.num_host_blocks(0)) - 1
    return list(range(count)), list(range(count))


def _fill_host(rig: Rig, blocks: list[int], cells: list[int], content: int) -> None:
    """Put content into host memory the slow and certain way."""
    for block in blocks:
        rig.write(0, block, content)
    rig.machine.num_wrong()
    rig.result(rig.store(0, blocks, cells))
    rig.machine.settle()
