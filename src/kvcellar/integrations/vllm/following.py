"""What the planner is told of the requests that run.

A request is followed from its admission to its end. The planner hears of a step if it
is the request's first, if it ends a chunk, or if the engine hands over recurrent state
in it. A request that cannot get there yet sleeps (``wakeups``).
"""

from typing import TYPE_CHECKING, Any

from kvcellar.core import events
from kvcellar.integrations.vllm.accounts import opening_of
from kvcellar.integrations.vllm.compat import EngineTables, StepTables
from kvcellar.integrations.vllm.wakeups import Wakeups, Watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

    from kvcellar.integrations.vllm.planner import EnginePlanner


class Following:
    """The requests that run, and how much of each the planner knows.

    Args:
        planner: who is told.
        most_tokens_per_step: what a decoding request can gain in one step.
    """

    def __init__(self, planner: "EnginePlanner", most_tokens_per_step: int) -> None:
        self._planner = planner
        self._watched: dict[str, Watched] = {}
        self._wakeups = Wakeups(most_tokens_per_step)
        self._managers: Sequence[Any] = ()
        self._state_tokens: Mapping[int, int] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def bind(
        self, managers: "Sequence[Any]", state_tokens: "Mapping[int, int]"
    ) -> None:
        """Take the engine's block tables.

        Args:
            managers: one per cache group.
            state_tokens: tokens per block of the groups of recurrent state.
        """
        self._managers = managers
        self._state_tokens = state_tokens

    def admit(self, request: "Request", external_tokens: int) -> None:
        """The engine admitted a request; follow it from now on."""
        request_id = request.request_id
        watched = self._watched.get(request_id)
        opening = None
        if watched is None:
            watched = self._watched[request_id] = Watched(request)
            chunk_tokens = self._planner.offloader.layout.chunk_tokens
            opening = opening_of(request, chunk_tokens)
        self._wakeups.watch(watched)
        tables = EngineTables(self._managers, request_id)
        self._planner.handle(
            events.Allocated(request_id, external_tokens, tables, opening)
        )
        watched.has_run = False

    def step(self, scheduler_output: "SchedulerOutput") -> None:
        """A step was scheduled; tell the planner what it completes."""
        num_scheduled = scheduler_output.num_scheduled_tokens
        handed_over = self._take_hand_overs(scheduler_output)
        for watched in self._wakeups.next_step():
            request = watched.request
            num_tokens = num_scheduled.get(request.request_id)
            if num_tokens is None:
                continue  # waits for its load, or sits this step out
            watched.has_run = True
            drafts = scheduler_output.scheduled_spec_decode_tokens.get(
                request.request_id, ()
            )
            first = request.num_computed_tokens
            computed = first + num_tokens - len(drafts)
            # A state stands for the token it was taken at, where the step starts or
            # ends; vLLM 0.32 hands over others too if block sizes differ (its #54413).
            states = [
                state
                for state in handed_over.get(request.request_id, ())
                if state[2] in (first, computed)
            ]
            self._offer(watched, first, computed, states)
            self._rest(watched, computed)

    def end(self, request: "Request") -> bool:
        """Tell what the last step completed, then forget the request.

        Returns:
            Whether it was followed: an aborted one may never have been admitted.
        """
        watched = self._watched.pop(request.request_id, None)
        if watched is None:
            return False
        self._wakeups.forget(watched)
        if watched.has_run:
            # The last sampled token has no KV yet.
            computed = min(request.num_computed_tokens, request.num_tokens - 1)
            self._offer(watched, computed, computed)
        return True

    def _take_hand_overs(
        self, scheduler_output: "SchedulerOutput"
    ) -> dict[str, list[tuple[int, int, int]]]:
        """Boundary states of this step, (group, block, tokens) by request."""
        block_state = scheduler_output.kv_connector_block_state
        if block_state is None or not block_state.boundary_state_offloads:
            return {}
        for request_id in block_state.boundary_state_offloads:
            watched = self._watched.get(request_id)
            if watched is not None:
                self._wakeups.watch(watched)
        handed_over: dict[str, list[tuple[int, int, int]]] = (
            block_state.boundary_state_offloads
        )
        return handed_over

    def _offer(
        self,
        watched: Watched,
        first: int,
        computed: int,
        states: "Sequence[tuple[int, int, int]]" = (),
    ) -> None:
        """Tell the planner, if the step ends a chunk or is the request's first."""
        request = watched.request
        layout = self._planner.offloader.layout
        known = min(computed, len(request.block_hashes) * layout.hash_block_tokens)
        num_chunks = known // layout.chunk_tokens
        if num_chunks <= watched.num_chunks and not states:
            return
        watched.num_chunks = max(num_chunks, watched.num_chunks)
        tables = StepTables(
            self._managers, request.request_id, states, self._state_tokens
        )
        self._planner.handle(
            events.TokensComputed(
                request.request_id,
                request.block_hashes,
                request.num_prompt_tokens,
                first,
                computed,
                tables,
                tables.boundaries,
            )
        )

    def _rest(self, watched: Watched, computed: int) -> None:
        """Let a decoding request sleep until it can reach a boundary to store."""
        request = watched.request
        if computed < request.num_tokens:
            return
        offloader = self._planner.offloader
        chunk = offloader.layout.chunk_tokens
        boundary = (max(watched.num_chunks, 0) + 1) * chunk
        wanted = offloader.num_wanted_tokens(
            request.request_id, request.num_prompt_tokens, boundary
        )
        if wanted < boundary:
            self._wakeups.forget(watched)
        else:
            self._wakeups.sleep(watched, boundary - computed)
