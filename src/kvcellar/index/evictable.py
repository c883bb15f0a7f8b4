"""What eviction policies remember of past uses, and how a parent takes it over.

A use of a prefix is a use of all its chunks. It is written on the deepest one only;
when that leaves, its parent takes it over. So when a node becomes a leaf, and may be
evicted, its history is complete: its own uses and those of all that hung below it.
"""

import math

HALF_LIFE_SECONDS = 600.0  # after so long a use counts half; the one parameter of LRFU
GHOSTS_PER_NODE = 4  # histories of chunks that have gone, per chunk that is there
SAMPLED_TOKENS = 512  # of a prompt, per chunk that is looked at for all of them
NEVER = -math.inf


def chunks_per_sample(chunk_tokens: int) -> int:
    """Neighbours on a path fare alike: one chunk in so many tells of them all."""
    return max(SAMPLED_TOKENS // chunk_tokens, 1)


class Evictable:
    """Something that can be evicted, with its past uses.

    Attributes:
        depth: steps below the root.
        last_use: stamp of the latest use or refresh, in seconds.
        latest: time of the latest counted use.
        previous: time of the counted use before.
        score: log2 of the sum of ``2 ** (time / HALF_LIFE_SECONDS)`` over all counted
            uses. All scores fade together, so their order changes by uses only.
            Source: Lee et al., LRFU, IEEE Transactions on Computers 50(12), 2001.
        known_score: the part of it that the parent has taken over already.
        num_uses: counted uses. A chunk that returns brings its own along, and its
            parent takes them over once more when it leaves: who has returned counts
            for more. Source: docs/benchmarks.md; counted once, less is found.
    """

    __slots__ = (
        "depth",
        "known_score",
        "last_use",
        "latest",
        "num_uses",
        "previous",
        "score",
    )

    def __init__(self, depth: int, last_use: float) -> None:
        self.depth = depth
        self.last_use = last_use
        self.latest = self.previous = self.score = self.known_score = NEVER
        self.num_uses = 0

    def reach(self, *, past_replaced: bool) -> int:
        """Steps to the checkpoint before it, or the root: what its own one serves.

        Args:
            past_replaced: pass those that are of use to no other path.
        """
        raise NotImplementedError

    @property
    def used_at(self) -> float:
        """When it was used last, however late it came; the stamp if nobody counted."""
        return self.last_use if self.latest == NEVER else self.latest

    def count_use(self, now: float) -> None:
        """One more use; not always the latest, since lazy mode learns late."""
        if now >= self.latest:
            self.latest, self.previous = now, self.latest
        else:
            self.previous = max(self.previous, now)
        self.score = _log_sum(self.score, now / HALF_LIFE_SECONDS)
        self.num_uses += 1

    def take_over(self, child: "Evictable") -> None:
        """A child leaves; its uses were uses of this one too."""
        if child.last_use > self.last_use:
            self.last_use = child.last_use
        if not child.num_uses:
            return
        if self.num_uses:
            self._merge_times(child)
            gained = _log_difference(child.score, child.known_score)
            self.score = _log_sum(self.score, gained)
        else:  # most often: a chunk inside what was used as a whole
            self.latest, self.previous = child.latest, child.previous
            self.score = child.score
            if child.known_score != NEVER:
                self.score = _log_difference(child.score, child.known_score)
        self.num_uses += child.num_uses

    def _merge_times(self, child: "Evictable") -> None:
        """The two latest of both; one request stamps one time, so equals are one."""
        early, late = (self, child) if self.latest < child.latest else (child, self)
        latest, previous = late.latest, NEVER
        for time in (late.previous, early.latest, early.previous):
            if previous < time < latest:
                previous = time
        self.latest, self.previous = latest, previous

    def past(self) -> "Past":
        """Its history, to be remembered when it has gone."""
        return self.latest, self.previous, self.score, self.num_uses

    def remember(self, past: "Past") -> None:
        """It has been here before; its parent knows those uses."""
        self.latest, self.previous, self.score, self.num_uses = past
        self.known_score = self.score


Past = tuple[float, float, float, int]
"""The history of something that has gone: latest, previous, score, number of uses."""


def _log_sum(a: float, b: float) -> float:
    """log2 of the sum of two numbers given as log2."""
    high, low = (a, b) if a >= b else (b, a)
    if low == NEVER:
        return high
    return high + math.log1p(2.0 ** (low - high)) / math.log(2.0)


def _log_difference(a: float, b: float) -> float:
    """log2 of the difference of two numbers given as log2; never for none."""
    if b == NEVER or a <= b:
        return a if b == NEVER else NEVER
    return a + math.log1p(-(2.0 ** (b - a))) / math.log(2.0)
