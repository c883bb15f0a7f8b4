"""Token units, the shortest prompt that can ever hit, and which group sets it."""

from dataclasses import dataclass

from kvcellar.layout.groups import CacheLayout, smallest_chunk_tokens


@dataclass(frozen=True, slots=True)
class Units:
    """Tokens per block, hit and chunk.

    Attributes:
        hash_block_tokens: per prefix hash of the engine.
        alignment_tokens: the engine's own prefix hits are multiples of this.
        scheduler_block_tokens: LCM of all groups' blocks.
        chunk_tokens: what host memory gives back are multiples of this.
        shortest_prompt_tokens: no shorter prompt can ever be served from host memory.
        set_by: what makes it that long, in words.
    """

    hash_block_tokens: int
    alignment_tokens: int
    scheduler_block_tokens: int
    chunk_tokens: int
    shortest_prompt_tokens: int
    set_by: str


def units_of(layout: CacheLayout) -> Units:
    """The units of a layout with its chunk.

    A resume leaves at least one token to compute; a drafter's entry is only known to be
    right if the prompt goes on one chunk further.
    """
    num_chunks = 1 + int(layout.has_drafter)
    return Units(
        hash_block_tokens=layout.hash_block_tokens,
        alignment_tokens=layout.alignment_tokens,
        scheduler_block_tokens=layout.scheduler_block_tokens,
        chunk_tokens=layout.chunk_tokens,
        shortest_prompt_tokens=num_chunks * layout.chunk_tokens + 1,
        set_by=_set_by(layout),
    )


def _set_by(layout: CacheLayout) -> str:
    smallest = smallest_chunk_tokens(layout.groups, layout.alignment_tokens)
    if layout.chunk_tokens > smallest:
        return (
            f"the chunk that was asked for; the smallest that fits is {smallest} tokens"
        )
    named = [
        f"{group.kind} group {group.group_id}"
        for group in layout.groups
        if group.tokens_per_block == smallest
    ]
    if len(named) == len(layout.groups):
        return f"the block of {smallest} tokens that all groups have"
    if named:
        return f"{' and '.join(named)}, in blocks of {smallest} tokens"
    blocks = sorted({group.tokens_per_block for group in layout.groups})
    return (
        "the least common multiple of the groups' blocks of "
        f"{', '.join(map(str, blocks))} tokens"
    )
