"""The dead-state rule: what a compressor wrote for closed groups is never read again.

A compressor keeps a row of values and scores per token. At the last token of a group
of ``ratio`` tokens it reads the rows of that group, and of the ``window - ratio``
tokens before it when groups overlap, and makes one entry of them:

    ratio 4, window 8     | b-8 .. b-5 | b-4 .. b-1 | b .. b+3 |
    entry made at b-1     |<---------------------->|
    entry made at b+3                  |<--------------------->|

So a prompt that is resumed at a multiple of ``ratio`` reads only the last
``window - ratio`` rows, whatever window the engine keeps; none for groups that do not
overlap. The rule says so by shortening the window of such groups. Nothing else has to
know: storing, looking up, loading and sizing follow ``needed``.
"""

import dataclasses
from collections.abc import Mapping

from kvcellar.errors import IncompatibleError
from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout


def with_dead_state_rule(layout: CacheLayout, ratios: Mapping[int, int]) -> CacheLayout:
    """The same layout, with compressors' windows cut to what a resume reads.

    Args:
        layout: as the engine declares it.
        ratios: tokens per compressed entry by ``group_id`` of each group that holds
            nothing but compressors' states. Never guess one: a window that is read at
            every token looks the same and must not be cut.

    Raises:
        IncompatibleError: a group is missing, is no whole number of compression
            groups wide, or serves a drafter; or the engine's own prefix cache may
            resume where states are read that a load under this rule leaves out.
    """
    unknown = set(ratios) - {group.group_id for group in layout.groups}
    if unknown:
        raise IncompatibleError(
            f"groups {sorted(unknown)} are said to hold compressor states, but the "
            "layout has no such groups; pass ids of its own groups"
        )
    groups = tuple(
        _cut(group, ratios[group.group_id], layout.alignment_tokens)
        if group.group_id in ratios
        else group
        for group in layout.groups
    )
    return dataclasses.replace(layout, groups=groups)


def effective_window_tokens(window_tokens: int, ratio: int) -> int:
    """Window that reads, at multiples of ``ratio``, what a compressor reads there.

    A window counts its own token, so 1 reads nothing that is already cached.
    """
    return window_tokens - ratio + 1


def _cut(group: GroupLayout, ratio: int, alignment_tokens: int) -> GroupLayout:
    window = group.span_tokens
    is_window = group.kind is AttentionKind.WINDOW and window is not None
    if not is_window or group.is_draft:
        raise IncompatibleError(
            f"group {group.group_id} ({group.kind}, draft: {group.is_draft}) cannot "
            "hold compressor states; pass sliding-window groups of the model itself"
        )
    assert window is not None
    if ratio < 1 or window % ratio:
        raise IncompatibleError(
            f"group {group.group_id} has a window of {window} tokens, which is no "
            f"whole number of compression groups of {ratio} tokens; the rule is not "
            "known to hold for it"
        )
    _refuse_live_states(group.group_id, window, ratio, alignment_tokens)
    effective = effective_window_tokens(window, ratio)
    return dataclasses.replace(group, span_tokens=effective)


def _refuse_live_states(
    group_id: int, window: int, ratio: int, alignment_tokens: int
) -> None:
    """Refuse where a resume reads states that some load left unwritten.

    The engine allocates the declared window for every load and later finds all of it
    in its own prefix cache. Its resume points are multiples of the alignment, so that,
    and not the chunk, decides.
    """
    if alignment_tokens % ratio:
        raise IncompatibleError(
            f"prefix hits are multiples of {alignment_tokens} tokens, which may lie "
            f"inside a compression group of {ratio} tokens, where its states are "
            "alive; keep the dead-state rule off"
        )
    has_overlap = window > ratio
    if has_overlap and window > alignment_tokens:
        raise IncompatibleError(
            f"group {group_id} has a window of {window} tokens, more than the "
            f"{alignment_tokens} between two prefix hits, so that what one load leaves "
            "unwritten is read at an earlier hit; keep the dead-state rule off"
        )
