"""The oracle: vLLM's real scheduler and cache manager, kvcellar's real connector.

Only the device is simulated, and time: when copies end, which requests come, are
aborted or preempted, all follows from one seed.
"""

import random
from typing import Any

from vllm.v1.request import RequestStatus

from kvcellar.testing.oracle import events
from kvcellar.testing.oracle.content import TokenStream
from kvcellar.testing.oracle.driver import Driver
from kvcellar.testing.oracle.engine import SimulatedEngine
from kvcellar.testing.oracle.figures import HangError, LeakError, OracleFigures
from kvcellar.testing.oracle.layouts import OracleLayout
from kvcellar.testing.oracle.meddling import Meddler
from kvcellar.testing.oracle.requests import (
    OracleRequest,
    arrived,
    engine_request,
    engine_update,
)
from kvcellar.testing.oracle.rows import Prompt
from kvcellar.testing.oracle.runner import OutOfStepError

HANG_STEPS = 3000

PATIENCE_STEPS = 300
"""Steps without progress after which clients give up, where vLLM 0.32 can be stuck.

Sessions, and requests whose load has ended, hold their blocks until they go on, and
the engine takes blocks from running requests only: they can wait for each other. And
a request whose load has failed stays counted among those that are being loaded, so it
cannot be admitted for a second load, beside itself; with one connector of ours there
is no second one.
"""


class Oracle(SimulatedEngine):
    """An engine under a seeded workload.

    Args:
        layout: what to run on; says too whether the engine schedules ahead.
        seed: decides everything that happens.
        check_every: steps between two checks of the whole index.
        engine_options: of ``SimulatedEngine``.

    Attributes:
        figures: what the run has done; complete after ``finish``.
        driver: the dice.
        log: what has happened so far.
    """

    def __init__(
        self,
        layout: OracleLayout,
        seed: int,
        *,
        check_every: int = 16,
        **engine_options: Any,
    ) -> None:
        super().__init__(layout, seed, **engine_options)
        self._check_every = check_every
        self.figures = OracleFigures()
        self._live: dict[str, OracleRequest] = {}
        most = layout.vllm_config.model_config.max_model_len - 8
        self.driver = Driver(self, random.Random(f"{seed}/events"), most)
        self._meddler: Meddler | None = None
        self.log: list[events.Event] = []
        self._last_progress = 0

    def meddle(self) -> None:
        """From now on, some look-ups are delayed and some promises shortened."""
        rng = random.Random(f"{self._seed}/meddling")
        alignment = self.planner.layout.alignment_tokens
        self._meddler = Meddler(self._connector, rng, alignment)

    # -- driving -------------------------------------------------------------------

    @property
    def live(self) -> dict[str, OracleRequest]:
        """Requests that have arrived and not ended, by id."""
        return self._live

    def run(self, num_steps: int) -> OracleFigures:
        """Run for ``num_steps``, then let everything end and look for leaks.

        Raises:
            WrongBytesError: a step would have read wrong bytes.
            OutOfStepError: engine and workers disagree about what was computed.
            HangError: nothing moves although requests wait.
            LeakError: something stays held at the end.
            InvariantError: the index is broken.
        """
        for _ in range(num_steps):
            for event in self.driver.between_steps():
                self.apply(event)
            self.apply(events.Steps(1))
        self.apply(events.Finish())
        return self.figures

    def apply(self, event: events.Event) -> None:
        """Let something happen, and note it in the log.

        Raises:
            AssertionError: as ``run``.
        """
        self._note(event)
        if isinstance(event, events.Steps):
            for _ in range(event.count):
                self.step()
        elif isinstance(event, events.Finish):
            self.finish()
        elif isinstance(event, events.Arrive):
            self._arrive(event)
        elif isinstance(event, events.Reset):
            self._reset(event)
        elif isinstance(event, events.Forget):
            self._forget(event)
        elif isinstance(event, events.Speed):
            self.set_slowness(event.slowness)
        elif event.request_id in self._live:
            self._change(self._live[event.request_id], event)

    def _note(self, event: events.Event) -> None:
        last = self.log[-1] if self.log else None
        if isinstance(event, events.Steps) and isinstance(last, events.Steps):
            self.log[-1] = events.Steps(last.count + event.count)
        else:
            self.log.append(event)

    def finish(self) -> None:
        """Let all requests end; verify that nothing stays held."""
        self.set_slowness(min(*(t.slowness for t in self.all_transfers), 0.5))
        for wanted in list(self._live.values()):
            if wanted.is_session and wanted.is_open:
                self._change(wanted, events.CloseSession(wanted.request_id))
        num_idle = 0
        while self.loop.has_work:
            self.step()
            num_idle = 0 if self._live else num_idle + 1
            if num_idle > HANG_STEPS:
                raise HangError("no request is left, and the engine still has work")
        self._assert_nothing_held()

    def step(self) -> None:
        """One turn of the engine's main loop."""
        output, outcome = self.loop.turn()
        self._deliver(outcome)
        self.figures.num_steps += 1
        self._watch_progress(output)
        if self.figures.num_steps % self._check_every == 0:
            self.check()

    def _deliver(self, outcome: dict[int, Any]) -> None:
        """Take what the engine tells its clients."""
        for engine_outputs in outcome.values():
            for one in engine_outputs.outputs:
                wanted = self._live.get(one.request_id)
                if wanted is None:
                    continue
                wanted.tokens += one.new_token_ids
                if one.finish_reason is not None:
                    self._answered(wanted)

    def _answered(self, wanted: OracleRequest) -> None:
        """An answer has ended; a session goes on with what waits, or becomes idle."""
        if wanted.is_session and not wanted.updates:
            wanted.is_idle = True
            return
        update = wanted.updates.popleft() if wanted.updates else None
        if update is None:
            self._ended(wanted.request_id)
        else:
            self._go_on(wanted, update)

    def _go_on(self, wanted: OracleRequest, update: events.Extend) -> None:
        """Follow the engine, which has appended the input behind what it keeps.

        The last sampled token goes, since it was not computed; unless it was a draft.
        """
        request = self.scheduler.requests[wanted.request_id]
        kept = request.num_prompt_tokens - update.num_tokens
        if len(wanted.tokens) - kept not in (1, 1 - self.loop.has_drafter):
            raise OutOfStepError(
                f"session {wanted.request_id} goes on behind token {kept}, and its "
                f"client knows {len(wanted.tokens)}"
            )
        wanted.extend(self._seed, update, kept)
        wanted.is_idle = False
        self.figures.num_extensions += 1

    def _ended(self, request_id: str) -> None:
        wanted = self._live.pop(request_id, None)
        if wanted is not None:
            self.driver.workload.remember(wanted)

    def _watch_progress(self, output: Any) -> None:
        step = self.figures.num_steps
        waits = any(not wanted.is_idle for wanted in self._live.values())
        if not waits or (output and output.total_num_scheduled_tokens):
            self._last_progress = step
        if step - self._last_progress == PATIENCE_STEPS:
            self._give_up()
        if step - self._last_progress > HANG_STEPS:
            raise HangError(
                f"{len(self._live)} requests wait and nothing has moved for "
                f"{HANG_STEPS} steps"
            )

    def _give_up(self) -> None:
        counted = set()
        if len(self.planners) > 1:
            loading = self.scheduler._inflight_prefills
            counted = {r.request_id for r in loading if not r.num_computed_tokens}
        for wanted in list(self._live.values()):
            if wanted.is_session or wanted.request_id in counted:
                self.figures.num_given_up += 1
                self._change(wanted, events.Abort(wanted.request_id))

    def _prompt_of(self, request_id: str) -> Prompt:
        """A request's prefix as the engine knows it now."""
        wanted = self._live[request_id]
        num_tokens = self.scheduler.requests[request_id].num_tokens
        if num_tokens != len(wanted.tokens):
            raise OutOfStepError(
                f"request {request_id}: the engine admits it with {num_tokens} tokens, "
                f"and its client knows {len(wanted.tokens)}"
            )
        marks = (*wanted.marks, (0, self.runner.epoch << 32))
        answers = TokenStream(self._seed, wanted.answers)
        return Prompt(list(wanted.tokens), marks, answers)

    # -- events --------------------------------------------------------------------

    def _arrive(self, event: events.Arrive) -> None:
        wanted = arrived(self._seed, event)
        self._live[event.request_id] = wanted
        self.figures.num_requests += 1
        self.scheduler.add_request(engine_request(wanted, self._hasher))

    def _change(
        self,
        wanted: OracleRequest,
        event: events.Extend | events.CloseSession | events.Abort,
    ) -> None:
        """Something happens to one live request."""
        name = wanted.request_id
        if isinstance(event, events.Abort):
            self.figures.num_aborts += 1
            self.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)
            self._ended(name)
            return
        update = event if isinstance(event, events.Extend) else None
        self.scheduler.add_request(engine_update(wanted, update, self._seed))
        if not wanted.is_idle:
            wanted.updates.append(update)
        elif update is None:
            self._ended(name)
        else:
            self._go_on(wanted, update)

    def _forget(self, event: events.Forget) -> None:
        pool = self.scheduler.kv_cache_manager.block_pool
        found = [b.block_id for b in pool.blocks if b.block_hash is not None]
        random.Random(event.seed).shuffle(found)
        pool.evict_blocks(set(found[: round(event.share * len(found))]))
        self.figures.num_forgets += 1

    def _reset(self, event: events.Reset) -> None:
        """New weights, if the engine agrees.

        vLLM 0.32 raises when it is to preempt everything while something besides the
        running requests holds device blocks (a copy, a request that waits for one, a
        session, a state that it copies itself, a step under way). Then, as when it
        answers False, the weights stay.
        """
        if event.is_paused:
            for outcome in self.loop.settle():
                self._deliver(outcome)
        try:
            is_done = self.scheduler.reset_prefix_cache(
                reset_running_requests=event.is_forced, reset_connector=True
            )
        except RuntimeError:
            is_done = False
        if is_done:
            self.runner.run_all()  # what is under way runs with the old weights
            self.runner.epoch += 1
            self.figures.num_resets += 1

    def _assert_nothing_held(self) -> None:
        self.check()
        held = self.held()
        if any(held.values()):
            raise LeakError(f"still held after the last request: {held}")
        self.add_counters(self.figures)
        if self._meddler:
            self.figures.num_delayed = self._meddler.num_delayed
            self.figures.num_shortened = self._meddler.num_shortened
