"""Seeded workloads of requests that come back: turns, branches, repeats, edited ends.

All that a workload does is fixed before any connector sees it, answers included, so
that every connector is asked the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

Hashes = list[bytes]

ALPHABET = 4  # few tokens, so that even a fresh tail may agree for a token or two
MOST_ANSWER_UNITS = 2
MEAN_LONG_ANSWER_TOKENS = 3.0  # a decoded token is a step of the engine, and slow


@dataclass(frozen=True, slots=True)
class Planned:
    """One request, prompt and answer.

    Attributes:
        salt: what besides tokens its prefix depends on; 0 for nothing.
        kind: how its prompt was made.
        hashes: prefix hashes of prompt and answer together.
        hash_tokens: tokens per hash.
    """

    request_id: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    salt: int
    kind: str
    hashes: Hashes
    hash_tokens: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a workload's lengths are drawn from.

    Attributes:
        unit_tokens: they cluster around multiples of this.
        hash_tokens: tokens per prefix hash.
        prompt_tokens: a long prompt.
        most_tokens: no prompt with its answer is longer.
    """

    unit_tokens: int
    hash_tokens: int
    prompt_tokens: int
    most_tokens: int


class WorkloadMaker:
    """Makes requests out of earlier ones; one per workload."""

    def __init__(self, seed: int, lengths: Lengths) -> None:
        self._rng = random.Random(seed)
        self._lengths = lengths
        self._history: list[tuple[list[int], int, int]] = []

    def make(self, hashes_of: Callable[[list[int], int], Hashes]) -> list[Planned]:
        """Six to fourteen requests, one after another.

        Args:
            hashes_of: the prefix hashes of tokens under a salt.
        """
        planned = []
        for number in range(self._rng.randint(6, 14)):
            kind, prompt, salt = self._prompt()
            answer = [self._token() for _ in range(self._num_answer_tokens())]
            prompt = prompt[: self._lengths.most_tokens - len(answer)] or [0]
            tokens = prompt + answer
            self._history.append((tokens, len(prompt), salt))
            planned.append(
                Planned(
                    request_id=f"r{number}",
                    prompt=tuple(prompt),
                    answer=tuple(answer),
                    salt=salt,
                    kind=kind,
                    hashes=hashes_of(tokens, salt),
                    hash_tokens=self._lengths.hash_tokens,
                )
            )
        return planned

    def _prompt(self) -> tuple[str, list[int], int]:
        rng = self._rng
        if not self._history or rng.random() < 0.1:
            low = self._lengths.prompt_tokens // 4
            length = self._near(rng.randint(low, self._lengths.prompt_tokens))
            return "fresh", self._tail(length), 0
        tokens, num_prompt_tokens, salt = rng.choice(self._history[-6:])
        if rng.random() < 0.04:
            salt = rng.randrange(3)
        prompt = tokens[:num_prompt_tokens]
        kind = rng.choice(("turn", "turn", "branch", "repeat", "edit", "edit"))
        if kind == "turn":
            return kind, tokens + self._turn(len(tokens)), salt
        if kind == "repeat":
            return kind, prompt, salt
        if kind == "edit":
            cut = rng.randint(1, 2 * self._lengths.unit_tokens)
            kept = max(len(prompt) - cut, 0)
            return kind, prompt[:kept] + self._turn(kept), salt
        kept = self._near(rng.randint(0, len(tokens)))
        return kind, tokens[:kept] + self._turn(kept), salt

    def _turn(self, length: int) -> list[int]:
        """New tokens after ``length`` others: a few, up to a boundary, or many."""
        rng, unit = self._rng, self._lengths.unit_tokens
        many = rng.randint(1, self._lengths.prompt_tokens // 2)
        to_boundary = -length % unit + unit * rng.randint(0, 2)
        chosen = rng.choice((rng.randint(1, 8), to_boundary, many, many))
        return self._tail(max(chosen + rng.choice((-1, 0, 0, 1)), 1))

    def _near(self, length: int) -> int:
        """The length, a boundary below it, or one beside that."""
        boundary = length // self._lengths.unit_tokens * self._lengths.unit_tokens
        near = self._rng.choice((length, boundary, boundary - 1, boundary + 1))
        return max(near, 1)

    def _num_answer_tokens(self) -> int:
        rng, unit = self._rng, self._lengths.unit_tokens
        if rng.random() < min(0.1, MEAN_LONG_ANSWER_TOKENS / unit):
            return rng.randint(1, MOST_ANSWER_UNITS * unit)
        return rng.choice((1, 1, 2, rng.randint(2, 6)))

    def _tail(self, length: int) -> list[int]:
        return [self._token() for _ in range(length)]

    def _token(self) -> int:
        return self._rng.randrange(ALPHABET)
