"""The same model in coarser blocks: as many bytes, far fewer things to move.

A trace tells what prompts share in units of, say, 512 tokens, so resume points that are
closer than that cannot be told apart. Blocks are joined as far as every resume
point still needs exactly the same tokens: all of a chunk, and of a window as much as
its length allows. Sizes, rules and decisions stay those of the model; there are only
fewer cells.
"""

import math

from kvcellar.attention.for_group import rule_for
from kvcellar.layout.groups import CacheLayout, GroupLayout, make_layout


def unit_tokens(layout: CacheLayout, block_tokens: int) -> int:
    """Distance of the resume points in a replay, in tokens.

    The smallest multiple of the model's chunks that is no shorter than a block of the
    trace. One that ends inside a block is shared by prompts that share the whole block.

    Args:
        layout: the model's.
        block_tokens: tokens per prefix id of the trace.
    """
    return -(-block_tokens // layout.chunk_tokens) * layout.chunk_tokens


def coarse_layout(layout: CacheLayout, unit: int) -> CacheLayout:
    """``layout`` with chunks of ``unit`` tokens and blocks as long as they can be.

    Args:
        unit: a multiple of ``layout.chunk_tokens``, in tokens.
    """
    groups = [_coarse(group, unit) for group in layout.groups]
    hash_tokens = math.gcd(*(group.tokens_per_block for group in groups))
    return make_layout(
        groups,
        hash_block_tokens=hash_tokens,
        alignment_tokens=unit,
        scheduler_block_tokens=unit,
        has_drafter=layout.has_drafter,
    )


def _coarse(group: GroupLayout, unit: int) -> GroupLayout:
    most = unit // group.tokens_per_block
    for factor in range(most, 1, -1):
        if most % factor == 0:
            candidate = group.joined(factor)
            if _needs_the_same(group, candidate, unit):
                return candidate
    return group


def _needs_the_same(group: GroupLayout, candidate: GroupLayout, unit: int) -> bool:
    """Whether both need as many bytes at every resume point."""
    span = group.span_tokens or 1
    last = 2 * (span // unit + 2)  # beyond the span, what is needed repeats
    fine, coarse = rule_for(group), rule_for(candidate)
    for boundary in range(unit, unit * (last + 1), unit):
        a, b = fine.needed(boundary), coarse.needed(boundary)
        if len(a) * group.payload_bytes != len(b) * candidate.payload_bytes:
            return False
    return True
