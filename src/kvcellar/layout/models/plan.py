"""The groups of one rank: what the engine's configuration for it would say."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
)
from kvcellar.layout.models.layer import KIND_BY_FORM, CacheForm, Layer, StateCache
from kvcellar.layout.sizes import BlockSizes, GroupUnits, resolve_block_sizes

STATE_BLOCKS = 2
"""States that a request holds at once: the one it reads and the one it writes."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One of the engine's groups on one rank, cacheable or scratch.

    Attributes:
        group_id: the engine's index.
        kind: how its layers remember; None for rings.
        form: the form of its layers' caches, of the first where they differ.
        tokens_per_block: tokens that one block covers.
        payload_bytes: bytes of one block that this rank's layers read.
        padded_bytes: the same with padding.
        num_layers: caches of the group on this rank.
        span_tokens: window or local-chunk length; None for the other kinds.
        is_cacheable: false for scratch, which is never found again and never moved.
        num_checkpoint_blocks: blocks for states set aside during a prefill.
    """

    group_id: int
    kind: AttentionKind | None
    form: CacheForm
    tokens_per_block: int
    payload_bytes: int
    padded_bytes: int
    num_layers: int
    span_tokens: int | None
    is_cacheable: bool
    num_checkpoint_blocks: int = 0

    def blocks_per_request(self, num_tokens: int, in_flight_tokens: int) -> int:
        """Most blocks that one request holds at once.

        Args:
            num_tokens: prompt and answer.
            in_flight_tokens: tokens scheduled and not yet settled: the engine's
                ``max_num_batched_tokens``, twice that with asynchronous scheduling.

        Source: max_memory_usage_bytes of the spec classes, v1/kv_cache_interface.py,
        vLLM 0.32.
        """
        if self.form is CacheForm.RING:
            return 1
        if self.form is CacheForm.STATE:
            return STATE_BLOCKS + self.num_checkpoint_blocks
        if self.span_tokens is None:
            return -(-num_tokens // self.tokens_per_block)
        is_window = self.kind is AttentionKind.WINDOW
        held = self.span_tokens + in_flight_tokens - (1 if is_window else 0)
        blocks = -(-min(held, num_tokens) // self.tokens_per_block)
        # A window need not start where a block does.
        return blocks + 1 if is_window else blocks


def plan_groups(
    groups: Sequence[Sequence[Layer]], held: Sequence[Sequence[Layer]]
) -> tuple[GroupPlan, ...]:
    """Describe the groups on one rank.

    The layers of a group agree in kind and span, since one block table serves them.

    Args:
        groups: of the whole model.
        held: of each group, the layers that the rank holds.
    """
    pairs = enumerate(zip(groups, held, strict=True))
    return tuple(_plan(group_id, group, own) for group_id, (group, own) in pairs)


def _plan(group_id: int, group: Sequence[Layer], own: Sequence[Layer]) -> GroupPlan:
    first = group[0].cache
    payload = sum(layer.cache.payload_bytes for layer in own)
    return GroupPlan(
        group_id=group_id,
        kind=KIND_BY_FORM.get(first.form),
        form=first.form,
        tokens_per_block=first.block_tokens,
        payload_bytes=payload,
        padded_bytes=sum(layer.cache.page_bytes for layer in own),
        num_layers=len(own),
        span_tokens=first.span_tokens,
        is_cacheable=all(layer.cache.is_cacheable for layer in group),
        num_checkpoint_blocks=(
            first.num_checkpoint_blocks if isinstance(first, StateCache) else 0
        ),
    )


def pool_row_bytes(plans: Sequence[GroupPlan]) -> int:
    """Bytes of one block of the engine's pool: those of its widest group.

    Source: _get_kv_cache_bytes_per_block, v1/core/kv_cache_utils.py, vLLM 0.32.
    """
    return max(plan.padded_bytes for plan in plans)


def layout_of(plans: Sequence[GroupPlan], sizes: BlockSizes) -> CacheLayout:
    """The layout of the cacheable groups, with the smallest chunk.

    Raises:
        IncompatibleError: no group is cacheable.
    """
    groups = [_group_layout(plan) for plan in plans if plan.is_cacheable]
    return make_layout(
        groups,
        hash_block_tokens=sizes.hash_block_tokens,
        alignment_tokens=sizes.alignment_tokens,
        scheduler_block_tokens=sizes.scheduler_block_tokens,
    )


def _group_layout(plan: GroupPlan) -> GroupLayout:
    assert plan.kind is not None
    return GroupLayout(
        group_id=plan.group_id,
        kind=plan.kind,
        tokens_per_block=plan.tokens_per_block,
        payload_bytes=plan.payload_bytes,
        padded_bytes=plan.padded_bytes,
        num_layers=plan.num_layers,
        span_tokens=plan.span_tokens,
    )


def block_sizes(groups: Sequence[Sequence[Layer]]) -> BlockSizes:
    """The token units that the engine derives from the whole model's groups."""
    return resolve_block_sizes([_units(group) for group in groups])


def _units(group: Sequence[Layer]) -> GroupUnits:
    forms = {layer.cache.form for layer in group}
    is_state = CacheForm.STATE in forms
    ratios = {layer.cache.tokens_per_state for layer in group}
    return GroupUnits(
        block_tokens=group[0].cache.block_tokens,
        is_sharded=not is_state,
        is_cacheable=all(layer.cache.is_cacheable for layer in group),
        has_fine_lookup=forms <= {CacheForm.FULL, CacheForm.LATENT, CacheForm.STATE},
        is_state=is_state,
        is_aligned_state=is_state,
        compressions=tuple(sorted(ratio for ratio in ratios if ratio > 1)),
    )
