"""Small layouts that the tests of index and core share."""

from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
)


def group(group_id, kind, tokens_per_block, span=None, payload=64):
    return GroupLayout(
        group_id=group_id,
        kind=kind,
        tokens_per_block=tokens_per_block,
        payload_bytes=payload,
        padded_bytes=payload,
        num_layers=int(payload > 0),
        span_tokens=span,
    )


def layout_of(*groups, hash_tokens, alignment, chunk=None) -> CacheLayout:
    return make_layout(
        groups,
        hash_block_tokens=hash_tokens,
        alignment_tokens=alignment,
        scheduler_block_tokens=alignment,
        chunk_tokens=chunk,
    )


def layout_of_bytes(*payloads, chunk_blocks=1) -> CacheLayout:
    """One full group, then windows, with so many bytes per block; 0 for no layer.

    Args:
        chunk_blocks: blocks of the full group in a chunk.
    """
    groups = (
        group(i, WINDOW if i else FULL, 16, 64 if i else None, payload)
        for i, payload in enumerate(payloads)
    )
    return layout_of(*groups, hash_tokens=16, alignment=16, chunk=16 * chunk_blocks)


FULL, WINDOW, CHUNKED, STATE = (
    AttentionKind.FULL,
    AttentionKind.WINDOW,
    AttentionKind.CHUNKED,
    AttentionKind.STATE,
)

LAYOUTS = {
    "full": layout_of(group(0, FULL, 4), hash_tokens=4, alignment=4),
    "full-long-chunks": layout_of(
        group(0, FULL, 4), hash_tokens=4, alignment=4, chunk=12
    ),
    "gemma": layout_of(
        group(0, WINDOW, 4, 16, 48),
        group(1, WINDOW, 4, 16, 48),
        group(2, FULL, 4, None, 32),
        hash_tokens=4,
        alignment=4,
    ),
    "odd-window": layout_of(
        group(0, FULL, 8, None, 100),
        group(1, WINDOW, 4, 7, 36),
        hash_tokens=4,
        alignment=8,
    ),
    "llama4": layout_of(
        group(0, CHUNKED, 4, 16, 40),
        group(1, FULL, 4, None, 40),
        hash_tokens=4,
        alignment=4,
    ),
    "deepseek-v4-like": layout_of(
        group(0, WINDOW, 8, 16, 90),
        group(1, WINDOW, 8, 16, 88),
        group(2, FULL, 32, None, 120),
        group(3, WINDOW, 2, 4, 96),
        group(4, WINDOW, 4, 16, 70),
        hash_tokens=2,
        alignment=32,
    ),
}
