"""The order that has lately served best, as a judge says.

A use is written in every node's history whatever the order, so a change only sorts anew
what may go.
"""

from collections.abc import Iterator

from kvcellar.index.node import Node
from kvcellar.index.policies.judge import OrderJudge
from kvcellar.index.policies.policy import EvictionPolicy, Prompt


class AdaptivePolicy:
    """Follows a judge; its nodes are sorted anew when he changes his mind."""

    wants_history = True
    reads_due = True

    def __init__(self, judge: OrderJudge) -> None:
        self._judge = judge
        self._policy: EvictionPolicy[Node] = judge.make_policy()
        self.is_by_recency = self._policy.is_by_recency
        judge.followers.append(self._follow)

    def another(self) -> "AdaptivePolicy":
        """A policy for other nodes under the same judge."""
        return AdaptivePolicy(self._judge)

    def observe(self, prompt: Prompt, now: float) -> None:
        """A prompt has come."""
        self._judge.observe(prompt, now)

    def _follow(self) -> None:
        policy: EvictionPolicy[Node] = self._judge.make_policy()
        for node in self._policy:
            policy.add(node)
        self._policy = policy
        self.is_by_recency = policy.is_by_recency

    # -- the order that is followed --------------------------------------------------

    def add(self, node: Node) -> None:
        """``node`` may be evicted from now on."""
        self._policy.add(node)

    def touch(self, node: Node) -> None:
        """The history of ``node`` has changed."""
        self._policy.touch(node)

    def remove(self, node: Node) -> None:
        """``node`` may no longer be evicted, or has gone."""
        self._policy.remove(node)

    def victim(self) -> Node | None:
        """The node to evict next."""
        return self._policy.victim()

    def __contains__(self, node: Node) -> bool:
        return node in self._policy

    def __len__(self) -> int:
        return len(self._policy)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._policy)
