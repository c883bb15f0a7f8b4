"""A race hunt: random jobs and model work, with every byte accounted for.

The hunter keeps what each block and cell must hold *in the order things were
submitted*. Jobs may share anything with each other: the device must keep the order. The
model keeps the planner's promises and no more: it writes no block that is being stored
or loaded, and reads none that is being loaded.
"""

import random
from dataclasses import dataclass

from kvcellar.testing.gpu.rig import Rig

MOST_BLOCKS = 6  # of one job
CHECK_STEPS = 50


@dataclass
class HuntFigures:
    """What a hunt has done.

    Attributes:
        num_compared: blocks that model work read and compared.
        num_wrong: comparisons that failed, on the device or in host memory.
        num_failed: jobs that ended with an error.
    """

    num_steps: int = 0
    num_jobs: int = 0
    num_compared: int = 0
    num_wrong: int = 0
    num_failed: int = 0


class Hunt:
    """Random steps on a rig; the rig's first group only, so that cells never alias.

    Args:
        seed: the same one plays the same steps, whatever the device makes of them.
    """

    def __init__(self, rig: Rig, seed: int) -> None:
        self.figures = HuntFigures()
        self._rig = rig
        self._rng = random.Random(seed)
        self._blocks: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._content = 0
        self._stored: dict[int, list[int]] = {}
        self._loaded: dict[int, list[int]] = {}

    def run(self, num_steps: int) -> HuntFigures:
        """Play, and check from time to time that all is right."""
        actions = (self._write, self._compare, self._store, self._load, self._move)
        for step in range(num_steps):
            self._rng.choice(actions)()
            self._take_results()
            self.figures.num_steps += 1
            if step % CHECK_STEPS == CHECK_STEPS - 1:
                self._check()
        self._check()
        return self.figures

    # -- model work ----------------------------------------------------------------

    def _write(self) -> None:
        busy = self._busy(self._stored) | self._busy(self._loaded)
        for block in self._some(set(range(self._rig.shape.num_blocks)) - busy):
            self._content += 1
            self._rig.write(0, block, self._content)
            self._blocks[block] = self._content

    def _compare(self) -> None:
        for block in self._some(self._blocks.keys() - self._busy(self._loaded)):
            self._rig.compare(0, block, self._blocks[block])
            self.figures.num_compared += 1

    # -- jobs ----------------------------------------------------------------------

    def _store(self) -> None:
        blocks = self._some(set(self._blocks))
        cells = self._rng.sample(range(self._rig.num_host_blocks(0)), len(blocks))
        self._cells.update(
            (cell, self._blocks[block])
            for cell, block in zip(cells, blocks, strict=True)
        )
        self._stored[self._rig.store(0, blocks, cells)] = blocks
        self.figures.num_jobs += 1

    def _load(self) -> None:
        cells = self._some(set(self._cells))
        blocks = self._rng.sample(range(self._rig.shape.num_blocks), len(cells))
        self._blocks.update(
            (block, self._cells[cell])
            for block, cell in zip(blocks, cells, strict=True)
        )
        self._loaded[self._rig.load(0, blocks, cells)] = blocks
        self.figures.num_jobs += 1

    def _move(self) -> None:
        per_cell = self._rig.geometry.blocks_per_cell[0]
        num_cells = self._rig.num_host_blocks(0) // per_cell
        source, to = self._rng.sample(range(num_cells), 2)
        for place in range(per_cell):
            content = self._cells.get(source * per_cell + place)
            if content is None:
                self._cells.pop(to * per_cell + place, None)
            else:
                self._cells[to * per_cell + place] = content
        self._rig.move(0, [source], [to])
        self.figures.num_jobs += 1

    # -- checks --------------------------------------------------------------------

    def _take_results(self) -> None:
        for result in self._rig.poll():
            self._stored.pop(result.job_id, None)
            self._loaded.pop(result.job_id, None)
            self.figures.num_failed += result.error is not None

    def _check(self) -> None:
        """Let all jobs end, then look at every block and every cell."""
        self._rig.drain()
        self._take_results()
        for block, content in self._blocks.items():
            self._rig.compare(0, block, content)
            self.figures.num_compared += 1
        self.figures.num_wrong += self._rig.machine.num_wrong()
        self.figures.num_wrong += sum(
            self._rig.host_content(0, cell) != content
            for cell, content in self._cells.items()
        )

    def _some(self, among: set[int]) -> list[int]:
        count = min(self._rng.randint(1, MOST_BLOCKS), len(among))
        return self._rng.sample(sorted(among), count)

    def _busy(self, jobs: dict[int, list[int]]) -> set[int]:
        return {block for blocks in jobs.values() for block in blocks}
