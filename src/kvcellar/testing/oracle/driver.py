"""Chooses what happens next: the dice of a run, apart from what they fall upon."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcellar.attention.reference import keeps_running_state
from kvcellar.testing.oracle import events
from kvcellar.testing.oracle.workload import Workload

if TYPE_CHECKING:
    from kvcellar.testing.oracle.oracle import Oracle
    from kvcellar.testing.oracle.requests import OracleRequest

MOST_SESSIONS = 2
"""A session holds its blocks while it waits, and the engine cannot take them away."""


class Driver:
    """Requests, aborts, resets and the rest, at random.

    Args:
        oracle: what the events fall upon; looked at, not touched.
        rng: the dice.
        most_tokens: no prompt plus answer is longer.
    """

    def __init__(self, oracle: "Oracle", rng: random.Random, most_tokens: int) -> None:
        self._oracle = oracle
        self._rng = rng
        layout = oracle.layout
        unit = oracle.planner.layout.chunk_tokens
        self.workload = Workload(rng, unit, layout.prompt_tokens, most_tokens)
        groups = oracle.planner.layout.groups
        self._has_states = any(keeps_running_state(group) for group in groups)
        self._most_session_tokens = most_tokens // 4
        self._most_live = layout.vllm_config.scheduler_config.max_num_seqs + 4

    def between_steps(self) -> Iterator[events.Event]:
        """What happens before the next step; each is to be applied at once."""
        rng = self._rng
        if len(self._live) < self._most_live and rng.random() < 0.3:
            yield self.arrival()
        for choose, rate in (
            (self.abort, 0.01),
            (self.reset, 0.002),
            (self.forget, 0.02),
            (self.speed, 0.01),
            (self.session_input, 0.2),
        ):
            if rng.random() < rate:
                event = choose()
                if event is not None:
                    yield event

    def arrival(self) -> events.Event:
        """A request or, now and then, a session."""
        num_sessions = sum(wanted.is_session for wanted in self._live.values())
        is_session = num_sessions < MOST_SESSIONS and self._rng.random() < 0.1
        event = self.workload.next_request(is_session=is_session)
        # A step ahead, the step behind a stop has been computed; vLLM 0.32 takes it
        # back from a session by counting, and a running state knows no counting back.
        if is_session and self._oracle.loop.is_async and self._has_states:
            return replace(event, can_stop=False)
        return event

    def abort(self) -> events.Event | None:
        """Some live request's end."""
        if not self._live:
            return None
        return events.Abort(self._rng.choice(list(self._live)))

    def reset(self) -> events.Event:
        """New weights, with or without a pause before."""
        has_jobs = any(planner.jobs for planner in self._oracle.planners)
        is_forced = not has_jobs and self._rng.random() < 0.7
        return events.Reset(is_paused=self._rng.random() < 0.7, is_forced=is_forced)

    def forget(self) -> events.Event:
        """The device's cache loses something, or everything."""
        share = self._rng.choice([0.2, 0.6, 1.0])
        return events.Forget(share, self._rng.randrange(1000))

    def speed(self) -> events.Event:
        """Copies at another speed."""
        return events.Speed(self._rng.choice([0.0, 0.3, 0.6, 0.9]))

    def session_input(self) -> events.Event | None:
        """More input for some session, or its end."""
        sessions = [w for w in self._live.values() if w.is_session and w.is_open]
        if not sessions:
            return None
        wanted = self._rng.choice(sessions)
        update = self._update(wanted)
        if self._rng.random() < 0.2 or update is None:
            return events.CloseSession(wanted.request_id)
        return update

    def _update(self, wanted: "OracleRequest") -> events.Extend | None:
        """More input, if there is room for it."""
        tokens = self.workload.input_tokens()
        new = self._rng.randint(1, 20)
        if wanted.most_tokens + tokens + new > self._most_session_tokens:
            return None
        name = self.workload.next_name()
        return events.Extend(wanted.request_id, name, tokens, new)

    @property
    def _live(self) -> "dict[str, OracleRequest]":
        return self._oracle.live
