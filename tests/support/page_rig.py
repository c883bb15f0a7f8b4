"""A device cache and an arena full of noise, laid out in many ways."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from kvcellar.config import HostBudget
from kvcellar.device.cpu import CpuDevice
from kvcellar.device.kernel import Kernel, best_kernel, python_kernel
from kvcellar.device.regions import PageTensor, Region, regions_from_tensors
from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout, make_layout
from kvcellar.layout.host import HostGeometry, plan_geometry
from kvcellar.layout.ranks import cut_ranks
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Placing:
    """How the engine lays pages out; ``padding`` bytes follow each."""

    is_block_outermost: bool = False
    padding: int = 0


@dataclass
class Rig:
    """A device cache and an arena, both ordinary arrays full of noise.

    ``pages[position]`` lists, for each layer page in the order of addresses,
    (offset, stride, payload) in ``cache``.
    """

    layout: CacheLayout
    geometry: HostGeometry
    num_blocks: int
    pages: list[list[tuple[int, int, int]]]
    cache: Bytes
    arena: Bytes
    kernel: Kernel
    device: CpuDevice = field(init=False)

    def __post_init__(self) -> None:
        self.device = CpuDevice(
            self.layout,
            self.geometry,
            self.regions(self.cache),
            num_blocks=self.num_blocks,
            host_address=self.arena.ctypes.data,
            kernel=self.kernel,
        )

    def regions(self, cache: Bytes) -> list[tuple[Region, ...]]:
        """The regions of this cache, or of another array that is laid out alike."""
        return [
            regions_from_tensors(
                [
                    PageTensor(cache.ctypes.data, len(cache), start, 0, stride, 1, size)
                    for start, stride, size in pages
                ],
                self.num_blocks,
            )
            for pages in self.pages
        ]

    def payload(self, position: int, block: int) -> bytes:
        return b"".join(
            self.cache[at : at + size].tobytes()
            for offset, stride, size in self.pages[position]
            for at in [offset + block * stride]
        )

    def num_host_blocks(self, position: int) -> int:
        size_class = self.geometry.classes[self.geometry.class_of[position]]
        cells = self.geometry.num_slabs * size_class.cells_per_slab
        return cells * self.geometry.blocks_per_cell[position]


def noise(num_bytes: int, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, num_bytes, dtype=np.uint8)


def group(
    group_id: int, kind: AttentionKind, tokens: int, payload_bytes: int
) -> GroupLayout:
    span = 32 if kind is AttentionKind.WINDOW else None
    return GroupLayout(
        group_id, kind, tokens, payload_bytes, payload_bytes, 1, span_tokens=span
    )


def make_rig(
    payloads: Sequence[Sequence[int]],
    *,
    placing: Placing | None = None,
    num_blocks: int = 6,
    blocks_per_chunk: int = 1,
    num_chunk_groups: int = 1,
    is_compiled: bool = True,
) -> Rig:
    """Groups of the given page payloads; the first ones make chunks."""
    groups = [
        group(
            i,
            AttentionKind.FULL if i < num_chunk_groups else AttentionKind.WINDOW,
            16,
            sum(sizes),
        )
        for i, sizes in enumerate(payloads)
    ]
    layout = make_layout(
        groups,
        hash_block_tokens=16,
        alignment_tokens=16,
        scheduler_block_tokens=16,
        chunk_tokens=16 * blocks_per_chunk,
    )
    cells = sorted({layout.cell_bytes(i) for i in range(len(groups))})
    num_bytes = 8 * len(cells) * cells[-1] + 3
    if cells[0]:
        geometry = plan_geometry(layout, num_bytes)
    else:  # a group of which only another rank has layers
        other = replace(
            layout, groups=tuple(replace(g, payload_bytes=8) for g in layout.groups)
        )
        budget = HostBudget(num_bytes, is_per_rank=True)
        geometry = cut_ranks([layout, other], budget).ranks[0]
    pages, num_cache_bytes = _place(payloads, num_blocks, placing or Placing())
    return Rig(
        layout,
        geometry,
        num_blocks,
        pages,
        noise(num_cache_bytes, 1),
        noise(geometry.arena_bytes, 2),
        best_kernel() if is_compiled else python_kernel(),
    )


def _place(
    payloads: Sequence[Sequence[int]], num_blocks: int, placing: Placing
) -> tuple[list[list[tuple[int, int, int]]], int]:
    """Pages as an engine lays them out; groups alias the same bytes."""
    padding = placing.padding
    row = max(sum(size + padding for size in sizes) for sizes in payloads)
    placed = []
    for sizes in payloads:
        starts = np.cumsum([0, *(size + padding for size in sizes)]).tolist()
        if placing.is_block_outermost:
            pages = [(at, row, n) for at, n in zip(starts, sizes, strict=False)]
        else:
            pages = [
                (at * num_blocks, n + padding, n)
                for at, n in zip(starts, sizes, strict=False)
            ]
        placed.append(pages)
    return placed, row * num_blocks


def job(direction: Direction, *copies: tuple[int, list[int], list[int]]) -> CopyJob:
    return CopyJob(
        1,
        direction,
        tuple(
            GroupCopy(p, np.array(d, dtype=np.int64), np.array(h, dtype=np.int64))
            for p, d, h in copies
        ),
    )


rigs = st.builds(
    make_rig,
    st.lists(
        st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=3
    ),
    placing=st.builds(Placing, st.booleans(), st.sampled_from([0, 0, 1, 7])),
    num_blocks=st.integers(1, 7),
    blocks_per_chunk=st.integers(1, 3),
    num_chunk_groups=st.integers(0, 3),
    is_compiled=st.booleans(),
)


def pairings(rig: Rig, position: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Device blocks and distinct host blocks, often in runs."""
    return st.lists(
        st.tuples(
            st.integers(0, rig.num_blocks - 1),
            st.integers(0, rig.num_host_blocks(position) - 1),
        ),
        max_size=8,
        unique_by=(lambda pair: pair[0], lambda pair: pair[1]),
    )
