"""A cache, an arena and the real device and engine between them, on any machine.

Every block of content has a number; word i of a block's payload is
``number * 2**24 + i``. So a word says which content it belongs to and where it stands.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvcellar.device.cuda import CudaDevice, RunningCopy
from kvcellar.device.driver import Driver
from kvcellar.device.pieces import DEFAULT_PIECE_BYTES, cut_pieces
from kvcellar.device.pinning import PinnedMemory
from kvcellar.device.regions import PageTensor, Region, regions_from_tensors
from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout, make_layout
from kvcellar.layout.host import HostGeometry, plan_geometry
from kvcellar.testing.gpu.machine import WORD_BYTES, Machine, Span
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy, JobResult
from kvcellar.transfer.stream_engine import StreamEngine

WORDS_PER_CONTENT = 2**24
WAIT_SECONDS = 60.0  # far above what any copy needs; reached only by a bug
_BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Shape:
    """What the cache looks like.

    Attributes:
        groups: words of each page of a block, group after group; the first group makes
            chunks, the others checkpoints.
        padded: the same with the padding behind each page; empty if there is none.
        num_blocks: blocks of the cache, shared by all groups.
        blocks_per_chunk: blocks of the first group in a cell.
        is_block_outermost: whether a block's pages lie side by side.
        host_cells: about as many cells of the largest size fit into host memory.
    """

    groups: tuple[tuple[int, ...], ...] = ((6, 6, 3), (9,))
    padded: tuple[tuple[int, ...], ...] = ()
    num_blocks: int = 12
    blocks_per_chunk: int = 1
    is_block_outermost: bool = False
    host_cells: int = 24

    @property
    def row_words(self) -> int:
        """Words of one block of the widest group."""
        return max(sum(pages) for pages in self.padded or self.groups)

    @property
    def num_words(self) -> int:
        """Words of the cache."""
        return self.row_words * self.num_blocks


class Rig:
    """Submits jobs to a real ``StreamEngine`` and knows what every block must hold.

    Args:
        machine: whose cache it is; at least ``shape.num_words`` words.
        driver: replaces the machine's, for planted faults.
        is_pinned: whether all of host memory is pinned from the start.
        piece_bytes: of the pieces that it is pinned in.

    Attributes:
        waits_for_start: whether a job's copies are queued when its submission returns.
    """

    def __init__(
        self,
        machine: Machine,
        shape: Shape,
        *,
        driver: Driver | None = None,
        is_pinned: bool = True,
        piece_bytes: int = DEFAULT_PIECE_BYTES,
    ) -> None:
        self.machine, self.shape = machine, shape
        self.driver = driver or machine.driver
        self.layout = _layout(shape)
        self.geometry = _geometry(self.layout, shape)
        self._memory = HostMemory(self.geometry)
        borders = cut_pieces(self._memory.address, self.geometry, piece_bytes)
        self.pinned = PinnedMemory(borders)
        self.host_address = self._memory.address
        for piece in range(self.pinned.num_pieces if is_pinned else 0):
            self.pinned.pin(machine.driver, piece)
        self.pages = _Pages(shape)
        self.device = _TellingDevice(
            self.layout,
            self.geometry,
            self.pages.regions(machine.cache_address),
            num_blocks=shape.num_blocks,
            memory=self.pinned,
            driver=self.driver,
        )
        self.engine = StreamEngine(self.device)
        self.waits_for_start = True
        self._num_jobs = 0
        self._results: dict[int, JobResult] = {}

    # -- model work ----------------------------------------------------------------

    def write(self, position: int, block: int, content: int) -> None:
        """Queue model work that fills a block."""
        for span, at in self.pages.spans(position, block):
            self.machine.write(span, content * WORDS_PER_CONTENT + at)

    def compare(self, position: int, block: int, content: int) -> None:
        """Queue model work that reads a block and counts it if it is not right."""
        for span, at in self.pages.spans(position, block):
            self.machine.compare(span, content * WORDS_PER_CONTENT + at)

    # -- jobs ----------------------------------------------------------------------

    def store(self, position: int, blocks: Sequence[int], cells: Sequence[int]) -> int:
        """Submit a store of blocks into host blocks; the job's number."""
        return self._submit(Direction.STORE, position, blocks, cells)

    def load(self, position: int, blocks: Sequence[int], cells: Sequence[int]) -> int:
        """Submit a load of host blocks into blocks; the job's number."""
        return self._submit(Direction.LOAD, position, blocks, cells)

    def move(self, position: int, sources: Sequence[int], to: Sequence[int]) -> int:
        """Submit a move of cells; the job's number."""
        return self._submit(Direction.MOVE, position, sources, to)

    def result(self, job_id: int) -> JobResult:
        """Wait for a job's end."""
        if not self.engine.wait_for([job_id], WAIT_SECONDS):
            raise TimeoutError(f"job {job_id} did not end")
        self.poll()
        return self._results[job_id]

    def drain(self) -> None:
        """Wait until every job has ended."""
        if not self.engine.drain(WAIT_SECONDS):
            raise TimeoutError(f"{self.engine.num_in_flight} jobs did not end")

    def poll(self) -> list[JobResult]:
        """Results since the last poll."""
        results = self.engine.poll()
        self._results.update({result.job_id: result for result in results})
        return results

    # -- host memory ---------------------------------------------------------------

    def host_content(self, position: int, host_block: int) -> int | None:
        """The number of the content that a host block holds; None if it is torn."""
        found = np.concatenate(list(self._host_pages(position, host_block)))
        content, rest = divmod(int(found[0]), WORDS_PER_CONTENT)
        is_whole = np.array_equal(found, found[0] + np.arange(len(found)))
        return None if rest or not is_whole else content

    def _host_pages(
        self, position: int, host_block: int
    ) -> Iterator[npt.NDArray[np.int64]]:
        """A host block's pages: each region has all blocks of the cell in a row."""
        per_cell = self.geometry.blocks_per_cell[position]
        cell, place = divmod(host_block, per_cell)
        at = self.geometry.cell_offset(position, cell) // WORD_BYTES
        words = self._memory.array.view(np.int64)
        for region in self.pages.regions(0)[position]:
            size = region.payload_bytes // WORD_BYTES
            yield words[at + place * size : at + (place + 1) * size]
            at += size * per_cell

    def num_host_blocks(self, position: int) -> int:
        """Host blocks of one group."""
        size_class = self.geometry.classes[self.geometry.class_of[position]]
        num_cells = self.geometry.num_slabs * size_class.cells_per_slab
        return num_cells * self.geometry.blocks_per_cell[position]

    def close(self) -> None:
        """End everything; raises if the engine still runs."""
        self.machine.settle()
        if not self.engine.close(WAIT_SECONDS):
            raise TimeoutError("the transfer engine did not end")
        self.machine.settle()
        self.pinned.unpin_all(self.machine.driver)
        self.device.close()
        self._memory.close()

    def _submit(
        self,
        direction: Direction,
        position: int,
        blocks: Sequence[int],
        to: Sequence[int],
    ) -> int:
        self._num_jobs += 1
        numbers = [np.array(side, dtype=np.int64) for side in (blocks, to)]
        copies = (GroupCopy(position, *numbers),)
        self.engine.submit(CopyJob(self._num_jobs, direction, copies))
        # Else chance would decide how much the caller queues before the copies.
        if self.waits_for_start and not self.device.starts.acquire(
            timeout=WAIT_SECONDS
        ):
            raise TimeoutError(f"job {self._num_jobs} was not started")
        return self._num_jobs


class _TellingDevice(CudaDevice):
    """Tells when a job has been started."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.starts = threading.Semaphore(0)

    def start(self, job: CopyJob, fence: object) -> RunningCopy:
        """Start, and tell, whether or not that went well."""
        try:
            return super().start(job, fence)
        finally:
            self.starts.release()


class _Pages:
    """Where the words of every block lie in the cache."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._regions = self.regions(0)

    def regions(self, address: int) -> list[tuple[Region, ...]]:
        """Regions of each group in a cache at ``address``."""
        groups = self._shape.groups
        return [
            regions_from_tensors(
                self._tensors(address, pages, padded), self._shape.num_blocks
            )
            for pages, padded in zip(groups, self._shape.padded or groups, strict=True)
        ]

    def spans(self, position: int, block: int) -> Iterator[tuple[Span, int]]:
        """A block's pages, and the place of each one's first word in its payload."""
        at = 0
        for region in self._regions[position]:
            start = region.base_address + block * region.block_stride_bytes
            num_words = region.payload_bytes // WORD_BYTES
            yield Span(start // WORD_BYTES, num_words), at
            at += num_words

    def _tensors(
        self, address: int, pages: Sequence[int], padded: Sequence[int]
    ) -> Iterator[PageTensor]:
        """One for each page, as an engine's configuration would say."""
        shape = self._shape
        starts = np.cumsum([0, *padded]).tolist()
        for start, size, room in zip(starts, pages, padded, strict=False):
            is_outer = shape.is_block_outermost
            yield PageTensor(
                storage_address=address,
                storage_bytes=shape.num_words * WORD_BYTES,
                offset_bytes=start * (1 if is_outer else shape.num_blocks) * WORD_BYTES,
                layer_stride_bytes=0,
                block_stride_bytes=(shape.row_words if is_outer else room) * WORD_BYTES,
                num_layers=1,
                payload_bytes=size * WORD_BYTES,
            )


def _layout(shape: Shape) -> CacheLayout:
    groups = [
        GroupLayout(
            index,
            AttentionKind.WINDOW if index else AttentionKind.FULL,
            _BLOCK_TOKENS,
            sum(pages) * WORD_BYTES,
            sum(pages) * WORD_BYTES,
            len(pages),
            span_tokens=2 * _BLOCK_TOKENS if index else None,
        )
        for index, pages in enumerate(shape.groups)
    ]
    return make_layout(
        groups,
        hash_block_tokens=_BLOCK_TOKENS,
        alignment_tokens=_BLOCK_TOKENS,
        scheduler_block_tokens=_BLOCK_TOKENS,
        chunk_tokens=_BLOCK_TOKENS * shape.blocks_per_chunk,
    )


def _geometry(layout: CacheLayout, shape: Shape) -> HostGeometry:
    largest = max(layout.cell_bytes(i) for i in range(len(layout.groups)))
    return plan_geometry(layout, shape.host_cells * largest)
