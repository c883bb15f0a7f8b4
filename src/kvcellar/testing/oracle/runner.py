"""The model runners' part: block tables, the forward pass, the connector's calls.

All ranks run a step together and know the same tables; each has a device and a worker
half of its own. A rank that is late with its copies is late by its transfers.
The order within a step is that of vLLM's runner: copies between blocks, then the
forward, then loads and stores are queued, then results are collected. Steps wait in a
queue, as they do on a device: the engine may hand over the next one, or take in an
earlier one's outcome, before a step runs.
vLLM's second runner prepares blocks before it tells the connector about the step.
Source: KVConnectorModelRunnerMixin, GPUModelRunner, and worker/gpu, vLLM 0.32
and 0.33.
"""

import pickle
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from kvcellar.attention.reference import (
    first_token_read,
    first_token_read_by_compressor,
)
from kvcellar.integrations.vllm.compat import saves_after_drafting
from kvcellar.layout.groups import CacheLayout, GroupLayout
from kvcellar.testing.oracle.content import NUM_TOKEN_IDS
from kvcellar.testing.oracle.device import SimulatedDevice
from kvcellar.testing.oracle.forward import Forward, Work, WrongBytesError
from kvcellar.testing.oracle.rows import Prompt, Row, Rows

__all__ = ["OracleRunner", "OutOfStepError", "WrongBytesError"]

GOOD_GUESSES = 0.6
"""Chance that a drafter's guess of a token is right."""


class OutOfStepError(AssertionError):
    """Engine and workers disagree about what has been computed."""


@dataclass(frozen=True, slots=True)
class _Rank:
    connector: Any
    device: SimulatedDevice
    forward: Forward


class OracleRunner:
    """Runs scheduler outputs against a simulated device.

    Args:
        layout: kinds and spans by engine group, as translated.
        ranks: each rank's worker half and simulated cache.
        merge: what the engine makes of all ranks' outputs.
        rng: picks drafts and places to check.
        ratios: compression ratio of groups that hold a compressor's state.
        has_drafter: whether a drafter's forward ends the step.
        is_v2: whether the order within a step is that of vLLM's second model runner.

    Attributes:
        rows: what the workers know of each request.
        epoch: version of the weights.
    """

    def __init__(  # noqa: PLR0913 - the parts of a worker, each from elsewhere
        self,
        layout: CacheLayout,
        ranks: Sequence[tuple[Any, SimulatedDevice]],
        merge: Callable[[list[ModelRunnerOutput]], ModelRunnerOutput],
        rng: random.Random,
        ratios: Mapping[int, int],
        *,
        has_drafter: bool = False,
        is_v2: bool = False,
    ) -> None:
        self._ratios = ratios
        self._merge = merge
        self._rng = rng
        self._ends_late = has_drafter and saves_after_drafting(is_v2=is_v2)
        self._is_v2 = is_v2
        self._queue: deque[tuple[Any, dict[str, Prompt]]] = deque()
        self._results: deque[ModelRunnerOutput] = deque()
        self.rows = Rows(len(ranks[0][1].group_pages))
        self.epoch = 0
        groups = {group.group_id: group for group in layout.groups}
        self._ranks = [
            _Rank(
                connector,
                device,
                Forward(groups, device, self.rows, rng, self._first_read),
            )
            for connector, device in ranks
        ]

    @property
    def num_units_checked(self) -> int:
        """Entries compared so far, each in every layer."""
        return sum(rank.forward.num_units_checked for rank in self._ranks)

    # -- the queue of steps --------------------------------------------------------

    def submit(self, output: Any, prompts: Mapping[str, Prompt]) -> None:
        """Take a step.

        Args:
            output: the scheduler's.
            prompts: of the requests that it admits, as they are now.
        """
        self._queue.append((output, dict(prompts)))

    def run_all(self) -> None:
        """Run every step in the queue.

        Raises:
            WrongBytesError: a block that a step reads is not what it must be.
            OutOfStepError: the engine counts other computed tokens than there are.
        """
        while self._queue:
            self._results.append(self._step(*self._queue.popleft()))

    def take_result(self) -> ModelRunnerOutput:
        """The oldest outcome that was not taken yet; its step runs now at the latest.

        Raises:
            WrongBytesError: as ``run_all``.
            OutOfStepError: as ``run_all``.
        """
        if not self._results:
            self._results.append(self._step(*self._queue.popleft()))
        return self._results.popleft()

    def _step(self, output: Any, prompts: Mapping[str, Prompt]) -> ModelRunnerOutput:
        metadata = self._sent(output.kv_connector_metadata)
        if not self._is_v2:
            self._handle_preemptions(metadata)
        self._update_rows(output, prompts)
        self._prepare_blocks(output)
        self._set_drafts(output)
        work = self._work(output.num_scheduled_tokens)
        for rank in self._ranks:
            rank.forward.migrate_states(work)
        if self._is_v2:
            self._handle_preemptions(metadata)
        for rank, own in zip(self._ranks, metadata, strict=True):
            rank.connector.bind_connector_metadata(own)
        self._compute(output, work)
        collected = [self._collect(rank.connector, output) for rank in self._ranks]
        return self._model_output(output, collected)

    def _sent(self, metadata: Any) -> list[Any]:
        """A step's metadata as each rank gets it: several get copies of their own."""
        if len(self._ranks) == 1:
            return [metadata]
        packed = pickle.dumps(metadata)
        return [pickle.loads(packed) for _ in self._ranks]

    def _handle_preemptions(self, metadata: Sequence[Any]) -> None:
        for rank, own in zip(self._ranks, metadata, strict=True):
            rank.connector.handle_preemptions(own)

    def _compute(self, output: Any, work: Sequence[Work]) -> None:
        """The forward, with loads behind it, or before it if it waits for them."""
        if output.has_sync_kv_loads:
            self._start_loads(work)
        if work:
            self._forward(work)
        if not output.has_sync_kv_loads:
            self._start_loads(work)

    def _prepare_blocks(self, output: Any) -> None:
        """Zero new blocks where the model needs it; copy blocks that are shared."""
        for rank in self._ranks:
            if output.new_block_ids_to_zero:
                rank.device.zero_blocks(output.new_block_ids_to_zero)
            for copy in output.kv_cache_block_copies or ():
                rank.device.copy_blocks([copy.src_block_id], [copy.dst_block_id])

    # -- tables --------------------------------------------------------------------

    def _update_rows(self, output: Any, prompts: Mapping[str, Prompt]) -> None:
        rows = self.rows
        for request_id in output.finished_req_ids:
            rows.drop(request_id)
        for new in output.scheduled_new_reqs:
            prompt = prompts[new.req_id]
            rows.admit(new.req_id, prompt, new.block_ids, new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for place, request_id in enumerate(cached.req_ids):
            blocks = cached.new_block_ids[place]
            computed = cached.num_computed_tokens[place]
            if request_id in cached.resumed_req_ids:
                rows.admit(request_id, prompts[request_id], blocks, computed)
                continue
            row = rows[request_id]
            self._compare(request_id, row, computed)
            if blocks is not None:
                rows.extend_tables(row, blocks)

    def _compare(self, request_id: str, row: Row, computed: int) -> None:
        """The engine's count of computed tokens against the worker's.

        A step ahead, it still counts the drafts that the last step rejected.
        """
        if computed not in (row.computed, row.computed + row.num_rejected):
            raise OutOfStepError(
                f"request {request_id}: the engine counts {computed} computed tokens, "
                f"the worker {row.computed}, and {row.num_rejected} rejected drafts"
            )

    def _set_drafts(self, output: Any) -> None:
        for request_id, drafts in output.scheduled_spec_decode_tokens.items():
            row = self.rows[request_id]
            # -1 is the engine's placeholder for what only the workers know.
            guesses = [
                self._guess(row, row.num_tokens + place) if token < 0 else token
                for place, token in enumerate(drafts)
            ]
            self.rows.guess(row, guesses)

    def _guess(self, row: Row, position: int) -> int:
        """A drafter's token, right more often than not."""
        is_good = self._rng.random() < GOOD_GUESSES
        return (row.answers.at(position) + (not is_good)) % NUM_TOKEN_IDS

    # -- reads and writes ----------------------------------------------------------

    def _work(self, scheduled: Mapping[str, int]) -> list[Work]:
        work = []
        for request_id, num_tokens in scheduled.items():
            row = self.rows[request_id]
            work.append(Work(request_id, row, row.computed, row.computed + num_tokens))
        return work

    def _forward(self, work: Sequence[Work]) -> None:
        for rank in self._ranks:
            rank.forward.run(work)
        for one in work:
            one.row.is_fresh = False

    def _first_read(self, group: GroupLayout, query: int) -> int:
        """First token that computing ``query`` reads, by what the layer really does."""
        ratio = self._ratios.get(group.group_id)
        if ratio is None:
            return first_token_read(group, query)
        overlap = (group.span_tokens or 1) - 1  # the cut window is the overlap and one
        return first_token_read_by_compressor(ratio, overlap, query)

    # -- the connector -------------------------------------------------------------

    def _start_loads(self, work: Sequence[Work]) -> None:
        context = SimpleNamespace(attn_metadata=True if work else None)
        for rank in self._ranks:
            rank.connector.start_load_kv(context)

    def _collect(self, connector: Any, output: Any) -> KVConnectorOutput:
        """With a drafter, stores are queued behind its forward: results come first."""
        results = KVConnectorOutput()
        is_late = self._ends_late and bool(output.num_scheduled_tokens)
        if not is_late:
            connector.wait_for_save()
        transfers = connector.get_transfer_results(output.finished_req_ids)
        results.finished_sending = transfers.finished_sending
        results.finished_recving = transfers.finished_recving
        results.failed_recving = transfers.failed_recving
        results.invalid_block_ids = connector.get_block_ids_with_load_errors()
        results.kv_connector_stats = connector.get_kv_connector_stats()
        results.kv_connector_worker_meta = connector.build_connector_worker_meta()
        if is_late:
            connector.wait_for_save()
        connector.clear_connector_metadata()
        return results

    # -- tokens --------------------------------------------------------------------

    def _model_output(
        self, output: Any, kv_outputs: Sequence[KVConnectorOutput]
    ) -> ModelRunnerOutput:
        request_ids = list(output.num_scheduled_tokens)
        sampled = []
        for request_id in request_ids:
            row = self.rows[request_id]
            end = row.computed + output.num_scheduled_tokens[request_id]
            row.computed, row.num_rejected = end, 0
            is_complete = end - len(row.drafts) >= row.num_tokens
            sampled.append(self._sample(row) if is_complete else [])
        outputs = [
            ModelRunnerOutput(
                req_ids=request_ids,
                req_id_to_index={r: i for i, r in enumerate(request_ids)},
                sampled_token_ids=sampled,
                kv_connector_output=kv_output,
            )
            for kv_output in kv_outputs
        ]
        return outputs[0] if len(outputs) == 1 else self._merge(outputs)

    def _sample(self, row: Row) -> list[int]:
        """The drafts that are right, from the first on, and one token more."""
        tokens = [row.answers.at(row.num_tokens)]
        for draft in row.drafts:
            if draft != tokens[-1]:
                break
            tokens.append(row.answers.at(row.num_tokens + len(tokens)))
        self.rows.accept(row, tokens)
        row.computed -= row.num_rejected
        return tokens

    def propose(self, output: Any, num_tokens: int) -> DraftTokenIds:
        """Guesses for the next step of every request that ran in this one."""
        request_ids = list(output.num_scheduled_tokens)
        guesses = [self._propose(self.rows[r], num_tokens) for r in request_ids]
        return DraftTokenIds(request_ids, guesses)

    def _propose(self, row: Row, num_tokens: int) -> list[int]:
        first = row.num_tokens
        return [self._guess(row, first + place) for place in range(num_tokens)]
