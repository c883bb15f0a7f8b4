"""The slow truth: token by token, from what each attention kind is defined to read.

Nothing here uses ``needed``. The fast rules are tested equal to it on random layouts.
"""

from collections.abc import Callable

from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout


def tokens_read(group: GroupLayout, query: int, computed: int) -> frozenset[int]:
    """Tokens of ``[0, computed)`` that computing token ``query`` reads from the cache.

    Args:
        query: position of the token being computed; at least ``computed``.
        computed: tokens whose cache was kept; later ones are recomputed.
    """
    return frozenset(t for t in range(computed) if _reads(group, query, t, computed))


def blocks_read(group: GroupLayout, boundary: int) -> frozenset[int]:
    """Blocks that a resume at ``boundary`` reads, now or at any later token.

    Later tokens are followed until no kind can look back any further.
    """
    horizon = boundary + (group.span_tokens or 1) + 1
    tokens = (
        token
        for query in range(boundary, horizon)
        for token in tokens_read(group, query, boundary)
    )
    return frozenset(token // group.tokens_per_block for token in tokens)


def longest_hit(
    layout: CacheLayout,
    num_tokens: int,
    has_block: Callable[[int, int], bool],
    limit: int | None = None,
) -> int:
    """Try every resume point from the longest down; the first that has all blocks."""
    most = num_tokens - 1 if limit is None else min(num_tokens - 1, limit)
    for boundary in range(most, 0, -1):
        if boundary % layout.chunk_tokens:
            continue
        if all(
            has_block(position, block)
            for position, group in enumerate(layout.groups)
            for block in blocks_read(group, boundary)
        ):
            return boundary
    return 0


def _reads(group: GroupLayout, query: int, token: int, computed: int) -> bool:
    span = group.span_tokens or 0
    if group.kind is AttentionKind.FULL:
        return True
    if group.kind is AttentionKind.WINDOW:
        return query - token < span
    if group.kind is AttentionKind.CHUNKED:
        return query // span == token // span
    # A recurrence reads the state that the last kept token left behind.
    return query == computed and token == computed - 1


def first_token_read(group: GroupLayout, query: int) -> int:
    """First token that computing ``query`` reads, when all before it are cached."""
    if group.kind is AttentionKind.WINDOW:
        return max(query - (group.span_tokens or 0) + 1, 0)
    if group.kind is AttentionKind.CHUNKED:
        return query - query % (group.span_tokens or 1)
    return 0


def first_token_read_by_compressor(ratio: int, overlap_tokens: int, query: int) -> int:
    """First token whose compressor state the group of ``query`` reads, at its end.

    What the engine declares as a sliding window, a compressor reads in steps: all
    tokens of a group read from the same place, the group's start less the overlap.

    Args:
        ratio: tokens per compressed entry.
        overlap_tokens: tokens of the group before that also count into an entry; the
            declared window less ``ratio``.
        query: position of the token being computed.

    Source: models/deepseek_v4/compressor.py and its kernels, vLLM 0.32.
    """
    return max(query - query % ratio - overlap_tokens, 0)


def keeps_running_state(group: GroupLayout) -> bool:
    """Whether a block holds one state that every token overwrites."""
    return group.kind is AttentionKind.STATE
