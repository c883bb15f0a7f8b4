"""S3-FIFO on the leaves: a short queue for newcomers, a long one for what came back.

A tenth of the leaves may be newcomers. One that reaches the head without having been
used again goes; one that has been moves to the long queue, where a use buys another
round. What returns while its history is remembered joins the long queue at once.
Source: Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator

from kvcellar.index.node import Node
from kvcellar.index.policies.policy import Prompt

_SHORT_SHARE = 0.1


class S3FifoPolicy:
    """Two queues of evictable nodes, with the uses that were seen when they entered.

    A node that is pinned or grows a child leaves its queue, and enters at the end when
    it may be evicted again.
    """

    wants_history = True
    reads_due = False
    is_selective = False
    superseded_first = False

    def __init__(self) -> None:
        self._short: OrderedDict[Node, int] = OrderedDict()
        self._long: OrderedDict[Node, int] = OrderedDict()

    def observe(self, prompt: Prompt, now: float) -> None:
        """Nothing is learnt."""

    def another(self) -> "S3FifoPolicy":
        """An empty one."""
        return S3FifoPolicy()

    def add(self, node: Node) -> None:
        """Enter ``node`` at the end of its queue."""
        queue = self._long if node.num_uses > 1 else self._short
        queue[node] = node.num_uses

    def touch(self, node: Node) -> None:
        """Nothing moves: uses are looked at when a node reaches its queue's head."""

    def remove(self, node: Node) -> None:
        """Forget ``node``."""
        self._short.pop(node, None)
        self._long.pop(node, None)

    def victim(self) -> Node | None:
        """The first that was not used since it came."""
        while self._short or self._long:
            is_short = len(self._short) > _SHORT_SHARE * len(self) or not self._long
            queue = self._short if is_short else self._long
            node, num_seen = next(iter(queue.items()))
            if node.num_uses <= num_seen:
                return node
            del queue[node]
            self._long[node] = node.num_uses
        return None

    def would_be_next(self, node: Node) -> bool:
        """Not known."""
        del node
        return False

    def __contains__(self, node: Node) -> bool:
        return node in self._short or node in self._long

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def __iter__(self) -> Iterator[Node]:
        return itertools.chain(self._short, self._long)
