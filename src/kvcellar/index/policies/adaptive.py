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
        self._follow_order(judge.make_policy())
        judge.followers.append(self._follow)

    def _follow_order(self, policy: EvictionPolicy[Node]) -> None:
        """From now on everything is asked of ``policy``, without a step between."""
        self._policy = policy
        self.superseded_first = policy.superseded_first
        self.is_selective = policy.is_selective
        self.add, self.touch, self.remove = policy.add, policy.touch, policy.remove
        self.victim, self.would_be_next = policy.victim, policy.would_be_next

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
        self._follow_order(policy)

    # -- the order that is followed --------------------------------------------------

    def __contains__(self, node: Node) -> bool:
        return node in self._policy

    def __len__(self) -> int:
        return len(self._policy)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._policy)
