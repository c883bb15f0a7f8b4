"""A seeded stream of requests: prompts share, branch, repeat, and end on boundaries.

Every token lies in some named stream, and a request's answer lies in its own. So a few
words say what a prompt is, and it stays what it is when other requests are left out.
"""

import random

from kvcellar.testing.oracle.events import Arrive, Control, Picture, Segment
from kvcellar.testing.oracle.requests import OracleRequest, cut


class Workload:
    """Makes requests out of earlier ones.

    Args:
        rng: decides everything but the tokens.
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
        self._history: list[tuple[tuple[Segment, ...], Arrive]] = []
        self._count = 0

    def next_request(self, *, is_session: bool = False) -> Arrive:
        """Another request; its prompt often starts as an earlier one did.

        Args:
            is_session: whether more input may follow; such a one stays short.
        """
        rng = self._rng
        most = self._most // 4 if is_session else self._most
        longest = 2 * self._unit
        name = self.next_name()
        base, old = rng.choice([*self._history, ((), None)])
        shared = min(self._shared(sum(count for _, _, count in base)), most)
        new = min(
            rng.choice([1, 2, 10, 20, rng.randint(1, 40), rng.randint(1, longest)]),
            most // 2,
        )
        length = max(min(shared + self._fresh(shared), most - new), 1)
        kept = min(shared, length)
        fresh = ((name, kept, length - kept),) if length > kept else ()
        keeps_all = old is not None and rng.random() < 0.9
        return Arrive(
            name,
            cut(base, kept) + fresh,
            new,
            salt=old.salt if old and keeps_all else rng.choice([0, 0, 0, 1, 2]),
            adapter=old.adapter if old and keeps_all else rng.choice([0, 0, 0, 1, 2]),
            pictures=self._pictures(old.pictures if old else (), kept, length),
            is_embedded=not is_session and rng.random() < 0.04,
            skips_reading=rng.random() < 0.03,
            can_stop=rng.random() < 0.3,
            is_session=is_session,
            controls=self._controls(),
        )

    def next_name(self) -> str:
        """A name that was not used before."""
        self._count += 1
        return f"r{self._count}"

    def input_tokens(self) -> int:
        """How much more input a session gets."""
        return self._fresh(0)

    def remember(self, request: OracleRequest) -> None:
        """A later request may continue or repeat this one."""
        if request.arrival is None:
            return
        self._history.append((request.all_segments(), request.arrival))
        if len(self._history) > 24:
            del self._history[self._rng.randrange(len(self._history) // 2)]

    def _pictures(
        self, old: tuple[Picture, ...], kept: int, length: int
    ) -> tuple[Picture, ...]:
        """Those that lie wholly in what is kept, now and then another in their place.

        A fresh part may get one more.
        """
        rng = self._rng
        pictures = [p for p in old if p[0] + p[1] <= kept]
        if pictures and rng.random() < 0.3:
            first, count, _ = pictures[-1]
            pictures[-1] = (first, count, rng.randrange(3))
        if length - kept >= 2 and rng.random() < 0.1:
            count = rng.randint(1, min(length - kept, 2 * self._unit))
            first = rng.randint(kept, length - count)
            pictures.append((first, count, rng.randrange(3)))
        return tuple(pictures)

    def _controls(self) -> tuple[Control, ...]:
        """Now and then a few wishes, one of which may make no sense."""
        rng = self._rng
        if rng.random() < 0.7:
            return ()
        choices: list[Control] = [
            ("max_load_tokens", rng.randint(0, 2 * self._prompt)),
            ("max_offload_tokens", rng.randint(0, 2 * self._prompt)),
            ("skip_load", rng.random() < 0.5),
            ("skip_store", rng.random() < 0.5),
            ("keep_seconds", rng.choice([0.01, 0.1, 1.0, 3600])),
            ("priority", rng.randint(-3, 3)),
            ("tags", rng.choice([[], ["a"], ["b", "c"]])),
            rng.choice([("priority", "high"), ("unknown", 1), ("remote_host", "x")]),
        ]
        return tuple(rng.sample(choices, rng.randint(1, 3)))

    def _shared(self, length: int) -> int:
        """How much of an earlier prompt is kept: all, a boundary or so, anything."""
        rng = self._rng
        boundary = rng.randint(0, length // self._unit) * self._unit
        beside = min(max(boundary + rng.randint(-1, 1), 0), length)
        return rng.choice([length, length, boundary, beside, boundary // 2])

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
