"""Chunks alone: let go of what is needed farthest in the future.

Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM
Systems Journal 5(2), 1966; with bypass, since nobody has to keep what was computed.
"""

import heapq
from collections import defaultdict

from kvcellar.replay.offline.uses import Uses


def most_chunks_found(uses: Uses, num_slots: int) -> int:
    """The most repeated chunks that a memory of so many chunks can have found.

    Exact where requests come one after another and chunks suffice to resume: each
    chunk kept from one use to the next takes a slot for that time, and letting go of
    the farthest next use finds the most such spans that fit. A prefix comes out whole
    by itself, since a chunk is needed no later than any chunk behind it.

    Args:
        num_slots: chunks that fit.
    """
    coming = defaultdict(list)  # by the request after which they are kept
    for later, earlier, num_chunks in zip(
        uses.later.tolist(),
        uses.earlier.tolist(),
        uses.num_chunks.tolist(),
        strict=True,
    ):
        coming[earlier].append((later, num_chunks))
    kept: dict[int, int] = {}  # chunks by the request that wants them
    farthest: list[int] = []  # a heap of the same requests, negative
    num_kept = num_found = 0
    for number in range(uses.num_requests):
        found = kept.pop(number, 0)
        num_found, num_kept = num_found + found, num_kept - found
        for later, num_chunks in coming.pop(number, ()):
            if later not in kept:
                heapq.heappush(farthest, -later)
            kept[later] = kept.get(later, 0) + num_chunks
            num_kept += num_chunks
        while num_kept > num_slots:
            later = -farthest[0]
            dropped = min(kept[later], num_kept - num_slots)
            kept[later] -= dropped
            num_kept -= dropped
            if not kept[later]:
                del kept[later]
                heapq.heappop(farthest)
    return num_found
