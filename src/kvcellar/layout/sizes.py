"""The three token units an engine derives from its groups' block sizes.

    hash block  <=  hit alignment  <=  scheduler block

The engine resolves them itself and passes them on. They are worked out here for
recorded configurations and tools, where no engine runs. Pure integers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GroupUnits:
    """What the unit rules need to know about one group, cacheable or not.

    Attributes:
        block_tokens: tokens per block on one context-parallel rank.
        is_sharded: whether context parallelism spreads a block over its ranks.
        is_cacheable: whether the group takes part in prefix hits.
        has_fine_lookup: whether the engine can look the group up inside a block; true
            of full-attention and state groups.
        is_state: whether the group keeps recurrent state.
        is_aligned_state: whether it keeps that state at block boundaries; a state
            group that does not cannot be hit.
        compressions: tokens per stored state of the group's layers, where above 1.
    """

    block_tokens: int
    is_sharded: bool = False
    is_cacheable: bool = True
    has_fine_lookup: bool = True
    is_state: bool = False
    is_aligned_state: bool = False
    compressions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Tokens per scheduler block, per prefix hash, and per possible hit."""

    scheduler_block_tokens: int
    hash_block_tokens: int
    alignment_tokens: int


def resolve_block_sizes(
    groups: Sequence[GroupUnits],
    *,
    engine_block_tokens: int | None = None,
    prefix_match_unit: int | None = None,
    num_context_ranks: int = 1,
    has_prefix_caching: bool = True,
) -> BlockSizes:
    """Work out the units as the engine does when a connector is configured.

    Args:
        groups: every group of the engine, in its order.
        engine_block_tokens: the engine's own block size, which counts where there is
            one group; None takes that group's.
        prefix_match_unit: the user's choice of hash block.
        num_context_ranks: decode-context-parallel ranks.

    Raises:
        ConfigError: there is no group, or ``prefix_match_unit`` does not divide what
            it must.

    Source: resolve_kv_cache_block_sizes, partial_hash_hits_enabled and
    resolve_cache_hit_alignment_tokens in v1/core/kv_cache_utils.py, vLLM 0.32.
    """
    if not groups:
        raise ConfigError("no cache group is given, so there are no block sizes")
    scaled = [_scaled(group, num_context_ranks) for group in groups]
    if len(groups) == 1:
        own = engine_block_tokens or groups[0].block_tokens
        size = own * (num_context_ranks if groups[0].is_sharded else 1)
        if prefix_match_unit not in (None, size):
            raise ConfigError(
                f"prefix_match_unit={prefix_match_unit} cannot be used with a single "
                f"cache group; remove it or set it to {size}"
            )
        return BlockSizes(size, size, size)
    scheduler = math.lcm(*scaled)
    if any(group.is_state and not group.is_aligned_state for group in groups):
        hash_tokens = scheduler
    else:
        hash_tokens = _hash_tokens(groups, scaled, prefix_match_unit)
        _check_compressions(groups, scheduler, hash_tokens, num_context_ranks)
    has_fine_hits = (
        has_prefix_caching
        and _has_fine_states(groups, hash_tokens, num_context_ranks)
        and all(
            group.has_fine_lookup or size == hash_tokens
            for group, size in zip(groups, scaled, strict=True)
            if group.is_cacheable
        )
    )
    return BlockSizes(
        scheduler, hash_tokens, hash_tokens if has_fine_hits else scheduler
    )


def _scaled(group: GroupUnits, num_context_ranks: int) -> int:
    return group.block_tokens * (num_context_ranks if group.is_sharded else 1)


def _hash_tokens(
    groups: Sequence[GroupUnits], scaled: Sequence[int], requested: int | None
) -> int:
    """GCD of the cacheable blocks, or the user's unit if it divides them all."""
    pairs = zip(groups, scaled, strict=True)
    cacheable = {i: size for i, (g, size) in enumerate(pairs) if g.is_cacheable}
    hashed = cacheable or dict(enumerate(scaled))
    largest = math.gcd(*hashed.values())
    if requested is None:
        return largest
    for index, size in hashed.items():
        if requested < 1 or size % requested:
            raise ConfigError(
                f"prefix_match_unit={requested} does not divide the block of {size} "
                f"tokens of group {index}; use a divisor of {largest}"
            )
    return requested


def _check_compressions(
    groups: Sequence[GroupUnits],
    scheduler: int,
    hash_tokens: int,
    num_context_ranks: int,
) -> None:
    is_fine = _has_fine_states(groups, hash_tokens, num_context_ranks)
    alignment = hash_tokens if is_fine else scheduler
    for index, group in enumerate(groups):
        for ratio in group.compressions if group.is_cacheable else ():
            if alignment % ratio:
                raise ConfigError(
                    f"hits at multiples of {alignment} tokens cut through the "
                    f"{ratio} tokens per state of group {index}; set "
                    f"prefix_match_unit to a multiple of {ratio}"
                )


def _has_fine_states(
    groups: Sequence[GroupUnits], hash_tokens: int, num_context_ranks: int
) -> bool:
    """Whether some aligned state may be hit inside its block."""
    smallest = hash_tokens + (1 if num_context_ranks == 1 else 0)
    return any(g.is_aligned_state and g.block_tokens >= smallest for g in groups)
