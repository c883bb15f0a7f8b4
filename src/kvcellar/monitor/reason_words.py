"""Each miss reason in a few words, for a narrow column.

In full they are in ``kvcellar.reasons``.
"""

from kvcellar.reasons import MissReason

WORDS: dict[MissReason, str] = {
    MissReason.NOT_ASKED: "no cache wanted",
    MissReason.REPLAYED: "replayed by engine",
    MissReason.DECLINED: "engine took less",
    MissReason.FAILED_LOAD: "load had failed",
    MissReason.TOO_CHEAP: "cheaper to compute",
    MissReason.MAX_LOAD_TOKENS: "over load limit",
    MissReason.NO_CHECKPOINT: "no checkpoint",
    MissReason.STORING: "still storing",
    MissReason.WAITING: "not stored yet",
    MissReason.IN_PROGRESS: "computed just now",
    MissReason.EVICTED: "held once, evicted",
    MissReason.RESET: "cache was reset",
    MissReason.FAILED_STORE: "store had failed",
    MissReason.NO_ROOM: "all room pinned",
    MissReason.NO_BLOCK: "device block gone",
    MissReason.LOST: "lost before stored",
    MissReason.NOT_ADMITTED: "not admitted",
    MissReason.OUTRANKED: "outranked by held",
    MissReason.MAX_STORE_TOKENS: "over store limit",
    MissReason.ANSWER: "answers not kept",
    MissReason.FILTERED: "asked not to store",
    MissReason.OTHER_IDENTITY: "other salt, adapter",
    MissReason.NEVER_SEEN: "never seen before",
    MissReason.DRAFT_MARGIN: "drafter's margin",
    MissReason.LAST_BOUNDARY: "end of the prompt",
}
MOST_CHARACTERS = 19


def words(reason: str) -> str:
    """A reason in a few words; as it is, if a newer server has it."""
    known = reason in set(MissReason)
    return WORDS[MissReason(reason)] if known else reason[:MOST_CHARACTERS]
