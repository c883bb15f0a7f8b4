"""What the figures of a view mean, in a sentence each, what matters most first."""

from collections.abc import Iterator

from kvcellar.monitor.numbers import count, percent, seconds
from kvcellar.monitor.reason_words import WORDS
from kvcellar.monitor.view import Level, Remark, View
from kvcellar.reasons import MissReason

_WORTH_SAYING = 0.05  # of all prompt tokens
_MOST = 0.5  # of the computed ones
_FULL = 0.95
_SLOW_LOAD_SECONDS = 1.0


def remarks(view: View) -> tuple[Remark, ...]:
    """At least one; warnings before notes."""
    found = [*_warnings(view), *_notes(view)]
    return tuple(found)


def _warnings(view: View) -> Iterator[Remark]:
    for row in view.engines:
        if row.is_missing:
            yield _warning(f"engine {row.engine} no longer answers")
    for copy in view.copies:
        if copy.num_failed:
            yield _warning(
                f"{count(copy.num_failed)} {copy.direction} jobs failed; the server's "
                "log says why"
            )
        if copy.direction == "load" and (copy.seconds_each or 0) > _SLOW_LOAD_SECONDS:
            waits = seconds(copy.seconds_each or 0)
            yield _warning(f"a request waits {waits} for its load: copies are slow")
    lacking = _share_without_room(view)
    if lacking >= _WORTH_SAYING:
        yield _warning(
            f"host memory is small for this: {percent(lacking)} of prompt tokens had "
            "been evicted, or not let in"
        )
    no_room = _share_of_prompts(view, MissReason.NO_ROOM)
    if no_room >= _WORTH_SAYING:
        yield _warning(
            f"running requests fill host memory: {percent(no_room)} of prompt tokens "
            "found no room"
        )


def _notes(view: View) -> Iterator[Remark]:
    total = view.sources.total
    if not total:
        yield Remark(Level.NOTE, "no prompt began to run in this window")
        return
    never = _share_of_computed(view, MissReason.NEVER_SEEN)
    if never >= _MOST and view.sources.served_share < _MOST:
        yield Remark(
            Level.NOTE,
            f"prompts are new: {percent(never)} of computed tokens were never seen "
            "before",
        )
    tail = _share_of_prompts(view, MissReason.LAST_BOUNDARY)
    if tail >= _MOST / 2:
        yield Remark(
            Level.NOTE,
            f"prompts are short beside a chunk: {percent(tail)} of tokens lie behind "
            "the last boundary",
        )
    if view.host.used_share < _FULL and not view.host.evicted_per_second:
        yield Remark(Level.GOOD, "host memory is not full and nothing was evicted")
    elif _share_without_room(view) < _WORTH_SAYING:
        missed = percent(_share_without_room(view))
        yield Remark(
            Level.GOOD,
            f"host memory suffices: {missed} of prompt tokens had been evicted, or not "
            "let in",
        )


def _share_without_room(view: View) -> float:
    """Prompt tokens that more host memory would have found."""
    reasons = MissReason.EVICTED, MissReason.OUTRANKED
    return sum(_share_of_prompts(view, reason) for reason in reasons)


def _share_of_prompts(view: View, reason: MissReason) -> float:
    total = view.sources.total
    return _tokens(view, reason) / total if total else 0.0


def _share_of_computed(view: View, reason: MissReason) -> float:
    computed = view.sources.computed
    return _tokens(view, reason) / computed if computed else 0.0


def _tokens(view: View, reason: MissReason) -> float:
    return sum(row.tokens for row in view.misses if row.words == WORDS[reason])


def _warning(text: str) -> Remark:
    return Remark(Level.WARNING, text)
