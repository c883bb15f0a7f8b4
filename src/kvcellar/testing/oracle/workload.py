"""A seeded stream of requests: prompts share, branch, repeat, and end on boundaries."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class OracleRequest:
    """One request as the workload made it.

    Attributes:
        tokens: the prompt; the runner appends what it samples.
        identity: what besides tokens its prefix depends on (a cache salt).
    """

    request_id: str
    tokens: list[int]
    max_new_tokens: int
    identity: int = 0
    skips_reading: bool = False
    num_prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        """Remember the prompt's length."""
        self.num_prompt_tokens = len(self.tokens)


class Workload:
    """Makes requests out of earlier ones.

    Args:
        rng: decides everything.
        unit_tokens: lengths cluster around multiples of this.
        prompt_tokens: a long prompt.
        most_tokens: no prompt plus answer is longer.
    """

    def __init__(
        self, rng: random.Random, unit_tokens: int, prompt_tokens: int, most_tokens: int
    ) -> None:
        self._rng = rng
        self._unit = unit_tokens
        self._prompt = prompt_tokens
        self._most = most_tokens
        self._history: list[tuple[list[int], int]] = [([], 0)]
        self._count = 0

    def next_request(self) -> OracleRequest:
        """Another request; its prompt often starts as an earlier one did."""
        rng = self._rng
        base, identity = rng.choice(self._history)
        if rng.random() < 0.05:
            identity = rng.randrange(3)
        tokens = base[: self._shared(len(base))]
        tokens += [rng.randrange(4) for _ in range(self._fresh(len(tokens)))]
        new = rng.choice([1, 2, rng.randint(1, 40), rng.randint(1, 2 * self._unit)])
        tokens = tokens[: self._most - new] or [0]
        self._count += 1
        return OracleRequest(
            f"r{self._count}", tokens, new, identity, rng.random() < 0.03
        )

    def remember(self, request: OracleRequest) -> None:
        """A later request may continue or repeat this one."""
        self._history.append((list(request.tokens), request.identity))
        if len(self._history) > 24:
            del self._history[self._rng.randrange(len(self._history) // 2)]

    def _shared(self, length: int) -> int:
        """How much of an earlier prompt is kept: all, a boundary or so, anything."""
        rng = self._rng
        boundary = rng.randint(0, length // self._unit) * self._unit
        return rng.choice(
            [length, length, boundary, boundary + rng.randint(-1, 1), boundary // 2]
        )

    def _fresh(self, shared: int) -> int:
        """How many new tokens follow: few, up to a boundary or beside it, many."""
        rng = self._rng
        to_boundary = -shared % self._unit + rng.randint(0, 2) * self._unit
        return max(
            rng.choice(
                [
                    0 if shared else 1,
                    rng.randint(1, 8),
                    to_boundary + rng.randint(-1, 1),
                    to_boundary,
                    rng.randint(1, self._prompt),
                ]
            ),
            0 if shared else 1,
        )
