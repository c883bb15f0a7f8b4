"""Why a running server computes tokens that it might have found."""

from collections.abc import Iterator, Mapping

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.checks.traffic import ENOUGH_TOKENS, counting
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, note, ok, warning
from kvcellar.reasons import MEANINGS, MissReason

_TOLD_FROM = 0.05  # share of all prompt tokens

REMEDIES: Mapping[MissReason, tuple[bool, str]] = {
    MissReason.EVICTED: (True, "give more host_memory; kvcellar replay says how much"),
    MissReason.OUTRANKED: (
        True,
        "give more host_memory; kvcellar replay says how much",
    ),
    MissReason.NO_ROOM: (True, "give more host_memory, or use mode lazy"),
    MissReason.LOST: (True, "use mode eager"),
    MissReason.NO_BLOCK: (True, "use mode eager, or lower --max-num-batched-tokens"),
    MissReason.FAILED_STORE: (True, "read the workers' log"),
    MissReason.FAILED_LOAD: (True, "read the workers' log"),
    MissReason.NO_CHECKPOINT: (
        False,
        "raise spaced_checkpoint_share, or try another placement with kvcellar replay",
    ),
    MissReason.DECLINED: (False, "check which connector is asked first"),
    MissReason.TOO_CHEAP: (False, "lower min_load_tokens if loading is faster here"),
    MissReason.MAX_LOAD_TOKENS: (False, "raise max_load_tokens"),
    MissReason.MAX_STORE_TOKENS: (False, "raise max_store_tokens"),
    MissReason.NOT_ADMITTED: (False, 'use "admission": "all" if prompts return once'),
    MissReason.ANSWER: (False, 'write "store_decoded": true if answers come back'),
    MissReason.OTHER_IDENTITY: (False, "share a cache salt where sharing is allowed"),
    MissReason.WAITING: (False, "use mode eager if the device often restarts prompts"),
    MissReason.STORING: (False, "send prompts that share a beginning a moment apart"),
    MissReason.IN_PROGRESS: (
        False,
        "send prompts that share a beginning a moment apart",
    ),
    MissReason.RESET: (False, "reset less, or without the external cache"),
}
"""Per reason whether it is a loss, and what to do about it.

What must be so, and reasons that a retry or another check deals with, have no entry.
"""


def find_misses(facts: Facts) -> Iterator[Finding]:
    """Each reason that costs a notable share of all prompt tokens and can be mended."""
    server = counting(facts)
    if server is None:
        return
    total = server.count("kvcellar_prompt_tokens_total")
    counts = {
        reason: server.count("kvcellar_missed_tokens_total", reason=reason)
        for reason in REMEDIES
    }
    told = [
        (count, reason)
        for reason, count in counts.items()
        if total >= ENOUGH_TOKENS and count >= _TOLD_FROM * total
    ]
    for count, reason in sorted(told, reverse=True):
        is_loss, remedy = REMEDIES[reason]
        level = warning if is_loss else note
        yield level(
            f"{count / total:.0%} of all prompt tokens were computed: {reason}",
            MEANINGS[reason],
            remedy,
        )
    if not told:
        yield ok(f"no single mendable reason costs 5 % of {total} prompt tokens")


CHECKS = (Check("misses", "why are tokens computed?", find_misses),)
