"""What one model's KV cache looks like: its groups and the token units they share."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcellar.errors import ConfigError, IncompatibleError


class AttentionKind(enum.StrEnum):
    """How a group's layers remember. Named only in ``layout`` and ``attention``.

    MLA and compressed MLA are byte layouts of ``FULL``; sliding-window MLA is one
    of ``WINDOW``. Groups that hold nothing a later request could read (circular
    scratch buffers) have no kind: they are left out of the layout.
    """

    FULL = "full"
    WINDOW = "window"
    CHUNKED = "chunked"
    STATE = "state"

    @property
    def is_append_only(self) -> bool:
        """Whether a block, once written, is needed by every longer prefix."""
        return self is AttentionKind.FULL

    @property
    def is_overwritten(self) -> bool:
        """Whether every token overwrites what the layers keep.

        Then a boundary's block exists only where the engine sets a copy aside.
        """
        return self is AttentionKind.STATE


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """One group of layers that share a block table.

    Attributes:
        group_id: the engine's index of the group.
        kind: how its layers remember.
        tokens_per_block: tokens that one block of this group covers.
        payload_bytes: bytes of one block that layers read, summed over the group's
            layers on one rank, without page padding; 0 where a pipeline stage has no
            layer of the group.
        padded_bytes: the same with the engine's page padding.
        num_layers: layers of the group that this rank holds.
        span_tokens: window or local-chunk length; None for the other kinds.
        is_draft: whether the group serves a speculative-decoding drafter.
    """

    group_id: int
    kind: AttentionKind
    tokens_per_block: int
    payload_bytes: int
    padded_bytes: int
    num_layers: int
    span_tokens: int | None = None
    is_draft: bool = False

    def joined(self, factor: int) -> "GroupLayout":
        """The same group with ``factor`` blocks in one; a state is one however long."""
        num_payloads = 1 if self.kind.is_overwritten else factor
        return replace(
            self,
            tokens_per_block=self.tokens_per_block * factor,
            payload_bytes=self.payload_bytes * num_payloads,
            padded_bytes=self.padded_bytes * num_payloads,
        )

    def blocks_filled(self, num_tokens: int) -> int:
        """Blocks that a step over ``num_tokens`` fills and does not keep, at most."""
        if self.kind.is_overwritten:
            return 0
        return -(-num_tokens // self.tokens_per_block)


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The prefix-cacheable groups of a model and the token units they share.

    Attributes:
        groups: participating groups, in the engine's order. Code below ``layout``
            addresses a group by its position here, not by ``group_id``.
        hash_block_tokens: tokens per prefix hash that the engine computes.
        alignment_tokens: prefix hits are multiples of this.
        scheduler_block_tokens: LCM of all the engine's groups, cacheable or not.
        chunk_tokens: tokens per chunk; resume points are multiples of it.
        has_drafter: whether some layer's entry at a token depends on the next token
            too, as a speculative-decoding drafter's does.
    """

    groups: tuple[GroupLayout, ...]
    hash_block_tokens: int
    alignment_tokens: int
    scheduler_block_tokens: int
    chunk_tokens: int
    has_drafter: bool = False

    @property
    def chunk_positions(self) -> tuple[int, ...]:
        """Positions of the groups whose blocks make up chunks."""
        return tuple(i for i, g in enumerate(self.groups) if g.kind.is_append_only)

    @property
    def checkpoint_positions(self) -> tuple[int, ...]:
        """Positions of the groups whose blocks make up checkpoints."""
        return tuple(i for i, g in enumerate(self.groups) if not g.kind.is_append_only)

    @property
    def overwritten_positions(self) -> tuple[int, ...]:
        """Positions of the groups whose blocks are overwritten in place."""
        return tuple(i for i, g in enumerate(self.groups) if g.kind.is_overwritten)

    def blocks_per_cell(self, position: int) -> int:
        """Blocks held by one cell: a chunk's worth, or one for checkpoint groups."""
        group = self.groups[position]
        if group.kind.is_append_only:
            return self.chunk_tokens // group.tokens_per_block
        return 1

    def cell_bytes(self, position: int) -> int:
        """Payload bytes of one cell of the group at ``position``."""
        return self.blocks_per_cell(position) * self.groups[position].payload_bytes


def smallest_chunk_tokens(groups: Sequence[GroupLayout], alignment_tokens: int) -> int:
    """Smallest legal chunk: a multiple of the alignment and of append-only blocks."""
    append_only = (g.tokens_per_block for g in groups if g.kind.is_append_only)
    return math.lcm(alignment_tokens, *append_only)


def make_layout(
    groups: Sequence[GroupLayout],
    *,
    hash_block_tokens: int,
    alignment_tokens: int,
    scheduler_block_tokens: int,
    chunk_tokens: int | None = None,
    has_drafter: bool = False,
) -> CacheLayout:
    """Check the token units against each other and build the layout.

    Args:
        chunk_tokens: None takes the smallest legal value.
        has_drafter: true also where a drafter's layers share unmarked groups.

    Raises:
        IncompatibleError: no group is prefix-cacheable, or the engine's units do
            not divide each other.
        ConfigError: ``chunk_tokens`` is not a multiple of the smallest chunk.
    """
    if not groups:
        raise IncompatibleError(
            "the model has no prefix-cacheable cache group, so there is nothing to "
            "keep; serve it without kvcellar"
        )
    for group in groups:
        _check_group(group, hash_block_tokens)
    if alignment_tokens % hash_block_tokens:
        raise IncompatibleError(
            f"hit alignment of {alignment_tokens} tokens is not a multiple of the "
            f"hash block of {hash_block_tokens} tokens; set the engine's "
            "prefix_match_unit to a divisor of both"
        )
    smallest = smallest_chunk_tokens(groups, alignment_tokens)
    if chunk_tokens is not None and (chunk_tokens <= 0 or chunk_tokens % smallest):
        raise ConfigError(
            f"chunk_tokens={chunk_tokens} does not fit this model; use a positive "
            f"multiple of {smallest}"
        )
    return CacheLayout(
        tuple(groups),
        hash_block_tokens,
        alignment_tokens,
        scheduler_block_tokens,
        chunk_tokens or smallest,
        has_drafter or any(group.is_draft for group in groups),
    )


def with_chunk_tokens(layout: CacheLayout, chunk_tokens: int) -> CacheLayout:
    """The same layout with another chunk.

    Raises:
        ConfigError: ``chunk_tokens`` is not a multiple of the smallest chunk.
    """
    return make_layout(
        layout.groups,
        hash_block_tokens=layout.hash_block_tokens,
        alignment_tokens=layout.alignment_tokens,
        scheduler_block_tokens=layout.scheduler_block_tokens,
        chunk_tokens=chunk_tokens,
        has_drafter=layout.has_drafter,
    )


def with_chosen_chunk(
    layout: CacheLayout, chunk_tokens: int | None, blocks_per_chunk: int | None
) -> CacheLayout:
    """The same layout with the chunk that a user's settings name.

    Args:
        chunk_tokens: tokens per chunk, or None.
        blocks_per_chunk: the same as a multiple of the layout's own chunk; wins.

    Raises:
        ConfigError: the chunk does not fit the model.
    """
    if blocks_per_chunk is not None:
        chunk_tokens = blocks_per_chunk * layout.chunk_tokens
    return layout if chunk_tokens is None else with_chunk_tokens(layout, chunk_tokens)


def _check_group(group: GroupLayout, hash_block_tokens: int) -> None:
    if group.tokens_per_block % hash_block_tokens:
        raise IncompatibleError(
            f"group {group.group_id} has blocks of {group.tokens_per_block} tokens, "
            f"not a multiple of the hash block of {hash_block_tokens}; set the "
            "engine's prefix_match_unit to a divisor of both"
        )
    if group.payload_bytes < 0:
        raise IncompatibleError(
            f"group {group.group_id} has {group.payload_bytes} bytes per block; no "
            "engine holds less than none"
        )


def plain_layout(
    block_bytes: int, num_layers: int, tokens_per_block: int = 16
) -> CacheLayout:
    """A model all of whose layers keep every token, for trials without a model.

    Args:
        block_bytes: of one block, all layers together.
    """
    group = GroupLayout(
        group_id=0,
        kind=AttentionKind.FULL,
        tokens_per_block=tokens_per_block,
        payload_bytes=block_bytes,
        padded_bytes=block_bytes,
        num_layers=num_layers,
    )
    return make_layout(
        [group],
        hash_block_tokens=tokens_per_block,
        alignment_tokens=tokens_per_block,
        scheduler_block_tokens=tokens_per_block,
    )
