"""A simulated server: a queue, one prefill at a time, answers beside it.

    arrival -> admitted: look-up, room on the device, load -> prefill in steps
            -> decode -> end

All decisions about host memory are ``Offloader.handle``'s, the code that serves; only
the device and time are simulated. Assumptions, which the report repeats: first come
first served; prefills run one after another; answers take a fixed time per token; a
request takes room for its answer when it is admitted, so nothing is preempted.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kvcellar.replay.agenda import Agenda, Lane
from kvcellar.replay.costs import CostModel
from kvcellar.replay.host_base import HostJob
from kvcellar.replay.memory import Memory, Running
from kvcellar.replay.outcome import Outcome
from kvcellar.replay.trace import Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The engine's limits.

    Attributes:
        max_num_seqs: requests that run at once.
        step_tokens: most prompt tokens computed in one step.
    """

    max_num_seqs: int = 256
    step_tokens: int = 8192


class Server:
    """Plays one trace through one configuration."""

    def __init__(self, memory: Memory, costs: CostModel, limits: ServerLimits) -> None:
        self.memory = memory
        self.outcome = memory.outcome
        self._costs = costs
        self._limits = limits
        self._agenda = Agenda()
        self._loads, self._stores = Lane(), Lane()
        self._waiting: deque[tuple[str, TraceRequest]] = deque()
        self._ready: deque[Running] = deque()
        self._is_computing = False
        self._num_running = 0

    def run(self, trace: Trace) -> Outcome:
        """Play the whole trace."""
        agenda = self._agenda
        for number, request in enumerate(trace.requests):
            agenda.run_until(request.arrival_seconds)
            agenda.now = max(agenda.now, request.arrival_seconds)
            self._arrive(f"r{number}", request)
        agenda.run_until(float("inf"))
        assert not self._waiting
        return self.outcome

    def _arrive(self, request_id: str, request: TraceRequest) -> None:
        if self.memory.is_too_long(request):
            self.outcome.num_too_long += 1
            return
        self._waiting.append((request_id, request))
        self._admit()

    def _admit(self) -> None:
        """Let requests in, in order, while the next step has tokens to spare.

        One that loads takes none until its load has ended.
        """
        while self._waiting and self._has_spare_tokens:
            request_id, request = self._waiting[0]
            running = self.memory.admit(request, request_id, self._agenda.now)
            self._end_later(self.memory.take_threatened())
            if running is None:
                return
            self._waiting.popleft()
            self._num_running += 1
            if running.load is None:
                self._is_ready(running)
            else:
                seconds = self._costs.load_seconds(running.load.num_bytes)
                end = self._loads.take(self._agenda.now, seconds)
                self._agenda.at(end, partial(self._loaded, running))

    @property
    def _has_spare_tokens(self) -> bool:
        is_busy = self._is_computing or self._ready
        return not is_busy and self._num_running < self._limits.max_num_seqs

    def _loaded(self, running: Running) -> None:
        self.memory.loaded(running, self._agenda.now)
        self._is_ready(running)

    # -- prefill and decode --------------------------------------------------------

    def _is_ready(self, running: Running) -> None:
        self._ready.append(running)
        self._start_prefill()

    def _start_prefill(self) -> None:
        if self._ready and not self._is_computing:
            self._is_computing = True
            self._step(self._ready.popleft())

    def _step(self, running: Running) -> None:
        first, num_tokens = running.computed, running.request.num_prompt_tokens
        end = min(first + self._limits.step_tokens, num_tokens)
        jobs = self.memory.compute(running, end, self._agenda.now)
        seconds = self._costs.prefill_seconds(end - first)
        self.outcome.busy_seconds += seconds
        self._end_later(jobs, after=seconds)
        self._agenda.at(self._agenda.now + seconds, partial(self._stepped, running))

    def _stepped(self, running: Running) -> None:
        if running.computed < running.request.num_prompt_tokens:
            self._step(running)
            return
        self._is_computing = False
        request, now = running.request, self._agenda.now
        self.outcome.ttft_seconds.append(now - request.arrival_seconds)
        self._decode(running)
        self._start_prefill()
        self._admit()

    def _decode(self, running: Running) -> None:
        """Plan the ends of chunks inside the answer, and its end."""
        prompt, output = (
            running.request.num_prompt_tokens,
            running.request.num_output_tokens,
        )
        per_token, unit = self._costs.decode_seconds_per_token, self.memory.unit
        start = self._agenda.now
        last = prompt + output - 1  # the last token is sampled, never computed
        for end in range((prompt // unit + 1) * unit, last + 1, unit):
            when = start + (end - prompt) * per_token
            self._agenda.at(when, partial(self._decoded, running, end))
        self._agenda.at(start + output * per_token, partial(self._ended, running))

    def _decoded(self, running: Running, end: int) -> None:
        self._end_later(self.memory.compute(running, end, self._agenda.now))

    def _ended(self, running: Running) -> None:
        self.memory.release(running, self._agenda.now)
        self._num_running -= 1
        self._admit()

    def _end_later(self, jobs: Sequence[HostJob], after: float = 0.0) -> None:
        """Let stores end, one after another, once their bytes are there."""
        for job in jobs:
            self.outcome.stored_bytes += job.num_bytes
            seconds = self._costs.store_seconds(job.num_bytes)
            end = self._stores.take(self._agenda.now + after, seconds)
            self._agenda.at(end, partial(self._stored, job.job_id))

    def _stored(self, job_id: int) -> None:
        self.memory.host.done(job_id, self._agenda.now)
