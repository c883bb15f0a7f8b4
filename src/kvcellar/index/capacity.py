"""What fits into host memory, for the start-up log and the planning tools.

Figures are of one rank, or of all with the bytes of all: the numbers of chunks and
checkpoints are the same, since every rank holds a share of each.
All figures count slabs: a slab serves one cell size at a time, so a size class takes
whole slabs. Blocks that neighbouring checkpoints share are counted once each, so real
use is never worse than these figures.
"""

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvcellar.attention import rule_for
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.layout.units import format_bytes

TYPICAL_PROMPT_TOKENS = 4096
_MAX_BOUNDARIES = 4096  # looked at for the largest checkpoint; one period is far less

CellCounts = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GroupCapacity:
    """One group's share.

    Attributes:
        name: kind and id, as in ``"window group 1"``.
        tokens_per_block: tokens that a block covers.
        block_bytes: payload bytes of one block.
        blocks_per_chunk: blocks in one chunk; 0 in checkpoint groups.
        checkpoint_blocks: most blocks that one checkpoint needs; 0 in chunk groups.
    """

    name: str
    tokens_per_block: int
    block_bytes: int
    blocks_per_chunk: int
    checkpoint_blocks: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an arena holds. Each "fits" figure is for an otherwise empty arena.

    Attributes:
        arena_bytes: bytes of the mapping.
        chunk_tokens: tokens per chunk.
        chunk_bytes: bytes of one chunk; 0 if no group grows with the prompt.
        checkpoint_bytes: bytes of the largest checkpoint; 0 if chunks suffice.
        num_chunks: chunks that fit if there are no checkpoints.
        num_checkpoints: checkpoints that fit if there are no chunks.
        prompt_tokens: length of the typical prompt, in whole chunks.
        prompt_bytes: of one such prompt: its own chunks and the checkpoint at its end.
        num_prompts: such prompts that fit.
        groups: per group, in layout order.
    """

    arena_bytes: int
    chunk_tokens: int
    chunk_bytes: int
    checkpoint_bytes: int
    num_chunks: int
    num_checkpoints: int
    prompt_tokens: int
    prompt_bytes: int
    num_prompts: int
    groups: tuple[GroupCapacity, ...]

    @property
    def bytes_per_token(self) -> float:
        """Bytes of chunks per token of prompt."""
        return self.chunk_bytes / self.chunk_tokens

    @property
    def chunk_tokens_total(self) -> int:
        """Tokens that fit if there are no checkpoints; the upper bound."""
        return self.num_chunks * self.chunk_tokens


def capacity(
    layout: CacheLayout,
    geometry: HostGeometry,
    prompt_tokens: int = TYPICAL_PROMPT_TOKENS,
) -> Capacity:
    """Count what fits. Pure; allocates nothing.

    Args:
        layout: a rank's cache layout, or that of all ranks together.
        geometry: the cut that belongs to it.
        prompt_tokens: length of the typical prompt; rounded down to whole chunks,
            but at least one.
    """
    boundary = max(prompt_tokens // layout.chunk_tokens, 1) * layout.chunk_tokens
    chunk = dict.fromkeys(layout.chunk_positions, 1)
    largest = _largest_checkpoint(layout)
    at_end = _checkpoint(layout, boundary)
    num_chunks = boundary // layout.chunk_tokens
    prompt = at_end | {p: count * num_chunks for p, count in chunk.items()}
    return Capacity(
        arena_bytes=geometry.arena_bytes,
        chunk_tokens=layout.chunk_tokens,
        chunk_bytes=_num_bytes(layout, chunk),
        checkpoint_bytes=_num_bytes(layout, largest),
        num_chunks=_num_that_fit(geometry, chunk),
        num_checkpoints=_num_that_fit(geometry, largest),
        prompt_tokens=boundary,
        prompt_bytes=_num_bytes(layout, prompt),
        num_prompts=_num_that_fit(geometry, prompt),
        groups=_groups(layout, largest),
    )


def describe(figures: Capacity, whose: str = "per rank") -> str:
    """One readable line for the arena, and one for each group.

    Args:
        whose: what the bytes are counted over.
    """
    lines = [
        f"host memory {format_bytes(figures.arena_bytes)} {whose}: "
        f"{figures.num_prompts} prompts of {figures.prompt_tokens} tokens, or "
        f"{figures.num_chunks} chunks of {figures.chunk_tokens} tokens "
        f"({format_bytes(figures.chunk_bytes)} each, {figures.chunk_tokens_total} "
        f"tokens), or {figures.num_checkpoints} checkpoints "
        f"({format_bytes(figures.checkpoint_bytes)} each)"
    ]
    for group in figures.groups:
        share = (
            f"{group.blocks_per_chunk} blocks per chunk"
            if group.blocks_per_chunk
            else f"up to {group.checkpoint_blocks} blocks per checkpoint"
        )
        lines.append(
            f"  {group.name}: blocks of {group.tokens_per_block} tokens, "
            f"{format_bytes(group.block_bytes)} each, {share}"
        )
    return "\n".join(lines)


def _checkpoint(layout: CacheLayout, boundary: int) -> dict[int, int]:
    """Cells of a checkpoint at ``boundary`` by position, where there are any."""
    needed = {
        position: len(rule_for(layout.groups[position]).needed(boundary))
        for position in layout.checkpoint_positions
    }
    return {position: count for position, count in needed.items() if count}


def _largest_checkpoint(layout: CacheLayout) -> dict[int, int]:
    """The most cells each group needs at any boundary, past where prompts are short."""
    counts: dict[int, int] = {}
    for position in layout.checkpoint_positions:
        group = layout.groups[position]
        span = group.span_tokens or 1
        period = math.lcm(layout.chunk_tokens, group.tokens_per_block, span)
        num_boundaries = min(period // layout.chunk_tokens, _MAX_BOUNDARIES)
        first = -(-(span + group.tokens_per_block) // layout.chunk_tokens)
        rule = rule_for(group)
        counts[position] = max(
            len(rule.needed(index * layout.chunk_tokens))
            for index in range(first, first + num_boundaries)
        )
    return {position: count for position, count in counts.items() if count}


def _num_bytes(layout: CacheLayout, cells: CellCounts) -> int:
    return sum(layout.cell_bytes(p) * count for p, count in cells.items())


def _num_that_fit(geometry: HostGeometry, cells: CellCounts) -> int:
    """Most copies of ``cells`` that an empty arena holds; 0 if they are no bytes."""
    per_class = [0] * len(geometry.classes)
    for position, count in cells.items():
        per_class[geometry.class_of[position]] += count

    def num_slabs(copies: int) -> int:
        pairs = zip(per_class, geometry.classes, strict=True)
        return sum(-(-n * copies // c.cells_per_slab) for n, c in pairs)

    if not any(per_class):
        return 0
    bound = geometry.num_slabs * max(c.cells_per_slab for c in geometry.classes) + 1
    return bisect.bisect_right(range(bound), geometry.num_slabs, key=num_slabs) - 1


def _groups(layout: CacheLayout, largest: CellCounts) -> tuple[GroupCapacity, ...]:
    return tuple(
        GroupCapacity(
            name=f"{group.kind} group {group.group_id}",
            tokens_per_block=group.tokens_per_block,
            block_bytes=group.payload_bytes,
            blocks_per_chunk=(
                layout.blocks_per_cell(position)
                if position in layout.chunk_positions
                else 0
            ),
            checkpoint_blocks=largest.get(position, 0),
        )
        for position, group in enumerate(layout.groups)
    )
