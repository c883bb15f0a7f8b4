"""One row per cache group: what it keeps, in blocks and bytes of one rank."""

from dataclasses import dataclass

from kvcellar.index.capacity import Capacity, GroupCapacity
from kvcellar.layout.groups import CacheLayout, GroupLayout
from kvcellar.layout.models import GroupPlan, ModelLayout


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group of layers, on one rank of the first pipeline stage.

    Attributes:
        name: kind and id, as in ``"window group 1"``.
        num_layers: caches that the rank holds of it.
        span_tokens: window or local-chunk length; None for the other kinds.
        is_kept: false for scratch, which nobody can find again.
        tokens_per_block: tokens that a block covers.
        block_bytes: payload of one block.
        device_block_bytes: the same with the engine's padding.
        chunk_bytes: payload in each chunk.
        checkpoint_blocks: most blocks of one checkpoint.
        checkpoint_bytes: payload of those.
    """

    name: str
    num_layers: int
    span_tokens: int | None
    is_kept: bool
    tokens_per_block: int
    block_bytes: int
    device_block_bytes: int
    chunk_bytes: int
    checkpoint_blocks: int
    checkpoint_bytes: int


def groups_of(
    model: ModelLayout, layout: CacheLayout, capacity: Capacity
) -> tuple[GroupFacts, ...]:
    """All groups in the engine's order.

    Args:
        layout: what is kept, in the order of ``capacity.groups``.
    """
    kept = {
        group.group_id: (group, counted)
        for group, counted in zip(layout.groups, capacity.groups, strict=True)
    }
    return tuple(
        _kept(planned, *kept[planned.group_id])
        if planned.group_id in kept
        else _scratch(planned)
        for planned in model.groups_all
    )


def _kept(planned: GroupPlan, group: GroupLayout, counted: GroupCapacity) -> GroupFacts:
    """A group that can be hit.

    Args:
        planned: the engine's view; its span is the whole window.
        group: under the rules that serve.
    """
    return GroupFacts(
        name=counted.name,
        num_layers=group.num_layers,
        span_tokens=planned.span_tokens,
        is_kept=True,
        tokens_per_block=counted.tokens_per_block,
        block_bytes=counted.block_bytes,
        device_block_bytes=group.padded_bytes,
        chunk_bytes=counted.blocks_per_chunk * counted.block_bytes,
        checkpoint_blocks=counted.checkpoint_blocks,
        checkpoint_bytes=counted.checkpoint_blocks * counted.block_bytes,
    )


def _scratch(planned: GroupPlan) -> GroupFacts:
    return GroupFacts(
        name=f"scratch group {planned.group_id}",
        num_layers=planned.num_layers,
        span_tokens=planned.span_tokens,
        is_kept=False,
        tokens_per_block=planned.tokens_per_block,
        block_bytes=planned.payload_bytes,
        device_block_bytes=planned.padded_bytes,
        chunk_bytes=0,
        checkpoint_blocks=0,
        checkpoint_bytes=0,
    )
