"""Priority classes: who asked for less goes first, whatever the policy says.

One policy per class, made when its first node comes. Nothing but the class is decided
here; within a class the policy's order holds.
"""

import itertools
from collections.abc import Iterator

from kvcellar.index.node import Node
from kvcellar.index.policies.policy import EvictionPolicy, Prompt


class PriorityClasses:
    """Orders nodes by priority first. A node must not change it while it is here.

    Args:
        first: orders the nodes of priority 0.
    """

    def __init__(self, first: EvictionPolicy[Node]) -> None:
        self.wants_history = first.wants_history
        self.reads_due = first.reads_due
        self._first = first
        self._classes = {0: first}  # lowest first

    @property
    def superseded_first(self) -> bool:
        """As within a class."""
        return self._first.superseded_first

    @property
    def is_selective(self) -> bool:
        """As within a class."""
        return self._first.is_selective

    def another(self) -> "PriorityClasses":
        """Empty classes of the same order."""
        return PriorityClasses(self._first.another())

    def observe(self, prompt: Prompt, now: float) -> None:
        """A prompt has come, whatever its priority."""
        self._first.observe(prompt, now)

    def add(self, node: Node) -> None:
        """Enter ``node`` into its class."""
        if not node.priority:  # as nearly all are
            self._first.add(node)
            return
        policy = self._classes.get(node.priority)
        if policy is None:
            policy = self._classes[node.priority] = self._first.another()
            self._classes = dict(sorted(self._classes.items()))
        policy.add(node)

    def touch(self, node: Node) -> None:
        """The history of ``node`` has changed."""
        policy = self._classes.get(node.priority)
        if policy is not None:
            policy.touch(node)

    def remove(self, node: Node) -> None:
        """Forget ``node``."""
        if not node.priority:
            self._first.remove(node)
            return
        policy = self._classes.get(node.priority)
        if policy is not None:
            policy.remove(node)

    def victim(self) -> Node | None:
        """The first of the lowest class that has any."""
        if len(self._classes) == 1:
            return self._first.victim()
        for policy in self._classes.values():
            node = policy.victim()
            if node is not None:
                return node
        return None

    def would_be_next(self, node: Node) -> bool:
        """As the policy says, where there is but one class."""
        is_known = len(self._classes) == 1 and not node.priority
        return is_known and self._first.would_be_next(node)

    def __contains__(self, node: Node) -> bool:
        policy = self._classes.get(node.priority)
        return policy is not None and node in policy

    def __len__(self) -> int:
        return sum(len(policy) for policy in self._classes.values())

    def __iter__(self) -> Iterator[Node]:
        return itertools.chain(*self._classes.values())
