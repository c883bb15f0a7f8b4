"""The last boundary inside a prompt: where its next turn begins."""


def prompt_ends(
    num_prompt_tokens: int, chunk_tokens: int, step_back_tokens: int
) -> tuple[int, ...]:
    """Boundaries kept at the end of a prompt, in tokens; some may be 0.

    When the prompt ends exactly on a boundary also the one before, since repeating a
    prompt must recompute its last token.

    Args:
        step_back_tokens: how far before the last boundary another one is kept: for a
            drafter's margin, or because most of its blocks are shared with the last
            one's. 0 for none.
    """
    last = num_prompt_tokens // chunk_tokens * chunk_tokens
    repeat = (num_prompt_tokens - 1) // chunk_tokens * chunk_tokens
    return last - step_back_tokens, repeat, last
