"""Checkpoints inside a long prefill at equal distances."""


def fixed_interval(
    first: int, last: int, chunk_tokens: int, most: int
) -> tuple[int, ...]:
    """At most ``most`` boundaries in ``(first, last)``, ascending, in tokens.

    Args:
        first: where the prefill starts.
        last: the last boundary inside the prompt; not among them.
    """
    length = last - first
    num_pieces = min(most + 1, length // chunk_tokens)
    ends = (
        (first + length * piece // num_pieces) // chunk_tokens * chunk_tokens
        for piece in range(1, num_pieces)
    )
    return tuple(end for end in ends if end > first)
