"""Streams of prompts that are made, for what no recorded trace shows.

Ids of prefixes stand for blocks of 512 tokens. Sizes are those of the other traces;
nothing about an order of eviction was chosen by these.
"""

import heapq
import itertools
import random
from array import array
from collections.abc import Callable, Iterator

from kvcellar.replay.trace import Trace, TraceRequest

BLOCK_TOKENS = 512


class _Maker:
    """Numbers, and prompts that nobody has seen."""

    def __init__(self) -> None:
        self.random = random.Random(5)  # any; the same each time
        self._ids = itertools.count()

    def new(self, least: int, most: int) -> list[int]:
        """So many blocks, all of them new."""
        return list(itertools.islice(self._ids, self.random.randint(least, most)))


def documents(num_requests: int) -> Trace:
    """Questions on 800 documents, some wanted more often; one system prompt."""
    make = _Maker()
    system = make.new(4, 4)
    shelf = [make.new(4, 40) for _ in range(800)]
    weights = [1 / (n + 1) ** 0.8 for n in range(len(shelf))]
    chosen = make.random.choices(shelf, weights, k=num_requests)
    return _trace(
        (0.4 * n, [*system, *d, *make.new(1, 1)]) for n, d in enumerate(chosen)
    )


def chats(num_requests: int) -> Trace:
    """One chat a second begins, of 1 to 12 turns, on average a minute between them."""
    make = _Maker()
    system = make.new(3, 3)
    coming = [
        (float(n), n, [*system, *make.new(1, 8)], make.random.choice([1, 1, 2, 4, 12]))
        for n in range(num_requests)
    ]
    return _trace(itertools.islice(_turns(make, coming), num_requests))


def _turns(
    make: _Maker, coming: list[tuple[float, int, list[int], int]]
) -> Iterator[tuple[float, list[int]]]:
    """Turns in the order of their times; each takes up what was said before."""
    while coming:
        time, number, prompt, num_left = heapq.heappop(coming)
        yield time, prompt
        if num_left > 1:
            pause = make.random.expovariate(1 / 60)
            longer = [*prompt, *make.new(1, 4)]
            heapq.heappush(coming, (time + pause, number, longer, num_left - 1))


def rounds(num_requests: int) -> Trace:
    """150 prompts, asked for one after another six times; then 150 others."""
    make = _Maker()

    def prompts() -> Iterator[list[int]]:
        while True:
            stems = [make.new(5, 30) for _ in range(150)]
            for stem in stems * 6:
                yield [*stem, *make.new(1, 1)]

    chosen = itertools.islice(prompts(), num_requests)
    return _trace((0.3 * n, prompt) for n, prompt in enumerate(chosen))


STREAMS: dict[str, Callable[[int], Trace]] = {
    "documents": documents,
    "chats": chats,
    "rounds": rounds,
}


def _trace(prompts: Iterator[tuple[float, list[int]]]) -> Trace:
    """Requests with answers of one token: a prompt's last block is not all of it."""
    return Trace(
        BLOCK_TOKENS,
        [
            TraceRequest(time, BLOCK_TOKENS * len(ids) + 1, 1, array("q", ids))
            for time, ids in prompts
        ],
    )
