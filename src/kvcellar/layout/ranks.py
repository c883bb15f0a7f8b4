"""All ranks of a server: what each holds, and one cut of host memory for all of them.

Tensor-parallel ranks mostly hold the same bytes, pipeline stages hold other layers. One
planner decides for all, so they share positions, size classes, cells per slab and the
number of slabs; bytes are each rank's own, and 0 where it has no layer of a group.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.config import HostBudget
from kvcellar.errors import IncompatibleError
from kvcellar.layout.cut import Cut, choose_cut
from kvcellar.layout.groups import CacheLayout, GroupLayout
from kvcellar.layout.host import HostGeometry, make_geometry, refuse_empty


@dataclass(frozen=True, slots=True)
class RanksGeometry:
    """One cut for all ranks.

    Attributes:
        ranks: each rank's part, in rank order; they differ in bytes only.
        server: the same with the bytes of all arenas together, for counting.
        num_sharing: consecutive ranks that share an arena; 1 if each has its own.
    """

    ranks: tuple[HostGeometry, ...]
    server: HostGeometry
    num_sharing: int = 1

    @property
    def arenas(self) -> tuple[HostGeometry, ...]:
        """Each arena once, in rank order."""
        return self.ranks[:: self.num_sharing]

    @property
    def are_even(self) -> bool:
        """Whether all ranks have the same bytes."""
        return all(geometry == self.ranks[0] for geometry in self.ranks)


def cut_ranks(
    layouts: Sequence[CacheLayout], budget: HostBudget, num_sharing: int = 1
) -> RanksGeometry:
    """Cut the memory of all ranks alike.

    Groups share a size class only if their cells are equal on every rank. Where ranks
    share one memory, each gets what its slabs need, so a rank with more bytes per token
    gets more. Where each has its own, the fullest rank decides, and the others leave
    some of theirs alone. Ranks that share an arena put their memory together and hold
    their bytes once.

    Args:
        layouts: one per rank, in rank order, alike but for bytes.
        budget: what there is.
        num_sharing: consecutive ranks that share an arena, since they hold the same.

    Raises:
        ConfigError: the memory cannot hold one slab per size class.
        IncompatibleError: no rank holds a byte of some group.
    """
    layouts = layouts[::num_sharing]
    if budget.is_per_rank:
        budget = dataclasses.replace(budget, num_bytes=budget.num_bytes * num_sharing)
    server = server_layout(layouts)
    for group in server.groups:
        refuse_empty(group, len(layouts) * num_sharing)
    positions = range(len(server.groups))
    by_position = [tuple(rank.cell_bytes(p) for rank in layouts) for p in positions]
    classes = sorted(set(by_position), key=lambda sizes: (sum(sizes), sizes))
    class_of = tuple(classes.index(sizes) for sizes in by_position)
    cut = choose_cut(classes, budget)
    ranks = tuple(
        made
        for arena, layout in enumerate(layouts)
        for made in [make_geometry(layout, cut, arena, class_of)] * num_sharing
    )
    whole = Cut(cut.cells_per_slab, (sum(cut.slab_bytes),), cut.num_slabs)
    counted = make_geometry(server, whole, 0, class_of)
    return RanksGeometry(ranks, counted, num_sharing)


def server_layout(
    layouts: Sequence[CacheLayout], ranks_per_stage: int = 1
) -> CacheLayout:
    """The layout of all ranks together: bytes added up, everything else shared.

    Args:
        layouts: one per rank, in rank order, those of one pipeline stage together.
        ranks_per_stage: tensor-parallel ranks; the layers of one of them count.

    Raises:
        IncompatibleError: ranks see groups or token units that differ.
    """
    first = layouts[0]
    for rank, layout in enumerate(layouts):
        _refuse_difference(first, layout, rank)
    groups = tuple(
        dataclasses.replace(
            group,
            payload_bytes=sum(r.groups[p].payload_bytes for r in layouts),
            padded_bytes=sum(r.groups[p].padded_bytes for r in layouts),
            num_layers=sum(r.groups[p].num_layers for r in layouts[::ranks_per_stage]),
            is_draft=any(r.groups[p].is_draft for r in layouts),
        )
        for p, group in enumerate(first.groups)
    )
    has_drafter = any(layout.has_drafter for layout in layouts)
    return dataclasses.replace(first, groups=groups, has_drafter=has_drafter)


def rank_layout(server: CacheLayout, own: CacheLayout) -> CacheLayout:
    """What all ranks agreed on, with one rank's bytes.

    Args:
        server: from ``server_layout``; its spans may have been cut since.
        own: the rank's layout.
    """
    groups = tuple(
        dataclasses.replace(
            shared,
            payload_bytes=group.payload_bytes,
            padded_bytes=group.padded_bytes,
            num_layers=group.num_layers,
        )
        for shared, group in zip(server.groups, own.groups, strict=True)
    )
    return dataclasses.replace(server, groups=groups)


def _refuse_difference(first: CacheLayout, other: CacheLayout, rank: int) -> None:
    """Refuse ranks that one plan cannot serve."""
    for name in ("hash_block_tokens", "alignment_tokens", "chunk_tokens"):
        ours, theirs = getattr(first, name), getattr(other, name)
        if ours != theirs:
            raise IncompatibleError(
                f"rank {rank} works with {name}={theirs} and rank 0 with {ours}; start "
                "all ranks with the same engine, kvcellar and settings"
            )
    if len(first.groups) != len(other.groups):
        raise IncompatibleError(
            f"rank {rank} sees {len(other.groups)} cache groups and rank 0 "
            f"{len(first.groups)}; start all ranks with the same engine and model"
        )
    for ours, theirs in zip(first.groups, other.groups, strict=True):
        if _nature(ours) != _nature(theirs):
            raise IncompatibleError(
                f"rank {rank} sees {_words(theirs)} where rank 0 sees {_words(ours)}; "
                "start all ranks with the same engine and model"
            )


def _nature(group: GroupLayout) -> tuple[object, ...]:
    return group.group_id, group.kind, group.tokens_per_block, group.span_tokens


def _words(group: GroupLayout) -> str:
    span = f" of {group.span_tokens} tokens" if group.span_tokens else ""
    return (
        f"{group.kind} group {group.group_id}{span} with blocks of "
        f"{group.tokens_per_block} tokens"
    )
