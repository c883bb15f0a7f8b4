"""Why a prompt token was computed although a cache was there.

The closed set of reasons, each with its meaning in plain words. The planner names one
for every token it does not serve; metrics, docs and ``kvcellar why`` read this table.
"""

import enum

from kvcellar.config import SELECTIVE_POLICIES


class MissReason(enum.StrEnum):
    """Why a token was computed; roughly in the order of depth in the prompt."""

    NOT_ASKED = "not_asked"
    REPLAYED = "replayed"
    DECLINED = "declined"
    FAILED_LOAD = "failed_load"
    TOO_CHEAP = "too_cheap"
    MAX_LOAD_TOKENS = "max_load_tokens"
    NO_CHECKPOINT = "no_checkpoint"
    STORING = "storing"
    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    EVICTED = "evicted"
    RESET = "reset"
    FAILED_STORE = "failed_store"
    NO_ROOM = "no_room"
    NO_BLOCK = "no_block"
    LOST = "lost"
    NOT_ADMITTED = "not_admitted"
    OUTRANKED = "outranked"
    MAX_STORE_TOKENS = "max_store_tokens"
    ANSWER = "answer"
    FILTERED = "filtered"
    OTHER_IDENTITY = "other_identity"
    NEVER_SEEN = "never_seen"
    DRAFT_MARGIN = "draft_margin"
    LAST_BOUNDARY = "last_boundary"


MEANINGS: dict[MissReason, str] = {
    MissReason.NOT_ASKED: "the request must not read a prefix cache (prompt "
    "logprobs, some pooling tasks), or asked for no load (skip_load)",
    MissReason.REPLAYED: "served, and computed again because the engine replays the "
    "end of what it was given",
    MissReason.DECLINED: "promised from host memory, and the engine took less",
    MissReason.FAILED_LOAD: "an earlier load for this request had failed, so nothing "
    "was loaded for it again",
    MissReason.TOO_CHEAP: "held in host memory, and computing them was held to be "
    "cheaper than loading (min_load_tokens)",
    MissReason.MAX_LOAD_TOKENS: "held in host memory, beyond the most tokens that may "
    "be loaded for one request (max_load_tokens)",
    MissReason.NO_CHECKPOINT: "their chunks are held, without a checkpoint to resume "
    "from behind them",
    MissReason.STORING: "their copy to host memory was still under way",
    MissReason.WAITING: "on the device only: lazy mode had not stored them yet",
    MissReason.IN_PROGRESS: "an earlier request was still computing them",
    MissReason.EVICTED: "held once, and evicted from host memory to make room",
    MissReason.RESET: "held until the cache was reset",
    MissReason.FAILED_STORE: "their copy to host memory had failed",
    MissReason.NO_ROOM: "not stored, because all of host memory was pinned",
    MissReason.NO_BLOCK: "not stored, because a device block had gone before",
    MissReason.LOST: "not stored: the device gave them away before lazy mode came",
    MissReason.NOT_ADMITTED: "not stored at first sight (admission: second-touch)",
    MissReason.OUTRANKED: "not stored, because everything held was expected to earn "
    f"more (eviction_policy: {' or '.join(sorted(SELECTIVE_POLICIES))})",
    MissReason.MAX_STORE_TOKENS: "not stored: beyond max_store_tokens of their request",
    MissReason.ANSWER: "not stored: an answer's tokens (store_decoded: false)",
    MissReason.FILTERED: "not stored: the request that computed them asked for that "
    "(skip_store)",
    MissReason.OTHER_IDENTITY: "the same tokens were seen under another cache salt, "
    "adapter or media, which must not be shared",
    MissReason.NEVER_SEEN: "no earlier request had them, or so long ago that it is "
    "forgotten",
    MissReason.DRAFT_MARGIN: "kept back for the drafter, whose cache depends on the "
    "next token too",
    MissReason.LAST_BOUNDARY: "behind the last boundary at which a prompt of this "
    "length can be resumed",
}
