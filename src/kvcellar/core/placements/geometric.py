"""Checkpoints inside a long prefill at a half, a quarter, an eighth before its end.

Whoever is the first to leave the path recomputes about as much again as he brings, not
everything.
"""


def geometric(first: int, last: int, chunk_tokens: int, most: int) -> tuple[int, ...]:
    """At most ``most`` boundaries in ``(first, last)``, ascending, in tokens.

    Args:
        first: where the prefill starts.
        last: the last boundary inside the prompt; not among them.
    """
    length, boundaries = last - first, []
    for _ in range(most):
        length //= 2
        if length < chunk_tokens:
            break
        boundaries.append(last - length // chunk_tokens * chunk_tokens)
    return tuple(boundaries)
