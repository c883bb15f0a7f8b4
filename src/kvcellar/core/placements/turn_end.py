"""Boundaries that decoding crosses: where the turn after this answer begins.

They cannot wait for the last token: by then the window may have moved on.
"""


def turn_ends(after: int, through: int, spacing_tokens: int) -> range:
    """Multiples of the spacing in ``(after, through]``, all beyond the prompt.

    Args:
        after: the end of the prompt, or how far this has been asked before.
        spacing_tokens: a multiple of the chunk.
    """
    first = after // spacing_tokens + 1
    return range(first * spacing_tokens, through + 1, spacing_tokens)
