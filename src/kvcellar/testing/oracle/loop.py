"""The engine's main loop: schedule, run, take in the outcome; in turn or overlapping.

Source: EngineCore.step and step_with_batch_queue, v1/engine/core.py, vLLM 0.32.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from kvcellar.testing.oracle.rows import Prompt
from kvcellar.testing.oracle.runner import OracleRunner


def most_in_flight(*, num_stages: int, is_async: bool, is_v2: bool) -> int:
    """Steps that the engine keeps under way at once.

    One for each pipeline stage, so that none is idle, and one more that is scheduled
    ahead.
    Source: VllmConfig.max_concurrent_batches, vLLM 0.32.
    """
    ahead = is_async and (is_v2 or num_stages == 1)
    return num_stages + ahead


class EngineLoop:
    """One engine's main loop, a call per turn of it.

    With an ``AsyncScheduler``, step n+1 is scheduled before the outcome of step n is
    known; with several pipeline stages too, for other requests. When the workers run a
    step, between its scheduling and its outcome, is up to a coin: a device may be
    early or late, but keeps the order.

    Args:
        scheduler: the engine's.
        runner: the workers.
        prompt_of: a request's prefix as it is now, by request id.
        rng: tosses the coin.
        num_draft_tokens: that a drafter proposes per step.
        num_in_flight: steps that are under way at once, at most.

    Attributes:
        num_ahead: steps that were scheduled before the last one's outcome was known.
        num_preemptions: requests that started again.
    """

    def __init__(
        self,
        scheduler: Any,
        runner: OracleRunner,
        prompt_of: Callable[[str], Prompt],
        rng: random.Random,
        num_draft_tokens: int,
        num_in_flight: int,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._prompt_of = prompt_of
        self._rng = rng
        self._num_draft_tokens = num_draft_tokens
        self._most_in_flight = num_in_flight
        self._in_flight: deque[Any] = deque()
        self.is_async = isinstance(scheduler, AsyncScheduler)
        self.num_ahead = 0
        self.num_preemptions = 0

    @property
    def has_drafter(self) -> bool:
        """Whether tokens are drafted."""
        return self._num_draft_tokens > 0

    @property
    def has_work(self) -> bool:
        """Whether another turn would do anything."""
        return bool(self._in_flight) or self._scheduler.has_requests()

    def turn(self) -> tuple[Any, dict[int, Any]]:
        """One turn: what was scheduled, if anything was, and the outcomes by client."""
        if self._most_in_flight > 1:
            return self._overlapping_turn()
        output = self._schedule()
        return output, self._take_outcome()

    def settle(self) -> list[dict[int, Any]]:
        """Take in all outcomes that are due, without scheduling anything."""
        return [self._take_outcome() for _ in range(len(self._in_flight))]

    def _overlapping_turn(self) -> tuple[Any, dict[int, Any]]:
        output = None
        if self._scheduler.has_requests():
            self._maybe_run()
            self.num_ahead += bool(self._in_flight)
            output = self._schedule()
            can_go_on = output.total_num_scheduled_tokens or (
                self._scheduler.has_requests()
            )
            if len(self._in_flight) < self._most_in_flight and can_go_on:
                return output, {}
        elif not self._in_flight:
            return None, {}
        self._maybe_run()
        return output, self._take_outcome()

    def _maybe_run(self) -> None:
        if self._rng.random() < 0.5:
            self._runner.run_all()

    def _schedule(self) -> Any:
        output = self._scheduler.schedule()
        admitted = [new.req_id for new in output.scheduled_new_reqs]
        admitted += output.scheduled_cached_reqs.resumed_req_ids
        requests = self._scheduler.requests
        self.num_preemptions += sum(requests[r].num_preemptions > 0 for r in admitted)
        self._runner.submit(output, {r: self._prompt_of(r) for r in admitted})
        self._in_flight.append(output)
        return output

    def _take_outcome(self) -> dict[int, Any]:
        output = self._in_flight.popleft()
        result = self._runner.take_result()
        outcome: dict[int, Any] = self._scheduler.update_from_output(output, result)
        if self._num_draft_tokens and not self.is_async:
            drafts = self._runner.propose(output, self._num_draft_tokens)
            self._scheduler.update_draft_token_ids(drafts)
        return outcome
