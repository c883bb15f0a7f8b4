"""The model runner's part: block tables, reads that are checked, writes that are made.

The order within a step is that of vLLM's runner: copies between blocks, then the
forward, then loads and stores are queued, then results are collected.
Source: KVConnectorModelRunnerMixin, vLLM 0.32.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from kvcellar.attention.reference import (
    first_token_read,
    first_token_read_by_compressor,
    keeps_running_state,
)
from kvcellar.layout.groups import CacheLayout, GroupLayout
from kvcellar.testing.oracle.content import Hashes, prefix_values
from kvcellar.testing.oracle.device import SimulatedDevice

Places = npt.NDArray[Any]


class WrongBytesError(AssertionError):
    """A step would have read bytes that its prefix does not demand."""


@dataclass(slots=True)
class Row:
    """A request as the worker knows it.

    Attributes:
        tables: device block ids per engine group.
        tokens: all token ids, sampled ones included.
        identity: what besides tokens its prefix depends on.
        computed: tokens whose entries are in the cache.
        drafts: token ids that a drafter guessed for this step.
        is_fresh: whether it has just been admitted, so that all it reads is checked.
    """

    tables: list[list[int]]
    tokens: list[int]
    identity: int
    computed: int
    is_fresh: bool = True
    drafts: list[int] = field(default_factory=list)
    values: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def value_of(self, positions: Places) -> Hashes:
        """Prefix values at ``positions``, drafted ones included."""
        if len(self.values) < len(self.tokens) + len(self.drafts):
            self.values = prefix_values([*self.tokens, *self.drafts], self.identity)
        return self.values[positions]

    def accept(self, tokens: list[int]) -> None:
        """Drafts that were right, and one sampled token; the other drafts are gone."""
        self.tokens += tokens
        self.drafts = []
        self.values = np.empty(0, dtype=np.uint64)


class OracleRunner:
    """Runs scheduler outputs against a simulated device.

    Args:
        layout: kinds and spans by engine group, as translated.
        connector: the worker half.
        device: the simulated cache.
        rng: samples tokens and places to check.
        ratios: compression ratio of groups that hold a compressor's state.

    Attributes:
        num_units_checked: entries compared so far, each in every layer.
    """

    def __init__(
        self,
        layout: CacheLayout,
        connector: Any,
        device: SimulatedDevice,
        rng: random.Random,
        ratios: Mapping[int, int],
    ) -> None:
        self._ratios = ratios
        self._groups = {group.group_id: group for group in layout.groups}
        self._connector = connector
        self._device = device
        self._rng = rng
        self.rows: dict[str, Row] = {}
        self.epoch = 0
        self.num_units_checked = 0

    def step(self, output: Any, requests: dict[str, Any]) -> ModelRunnerOutput:
        """One engine step.

        Args:
            output: the scheduler's.
            requests: the workload's requests by id: ``tokens`` and ``identity``.

        Raises:
            WrongBytesError: a block that the step reads is not what it must be.
        """
        metadata = output.kv_connector_metadata
        self._connector.handle_preemptions(metadata)
        self._update_rows(output, requests)
        for copy in output.kv_cache_block_copies or ():
            self._device.copy_blocks([copy.src_block_id], [copy.dst_block_id])
        self._connector.bind_connector_metadata(metadata)
        scheduled = output.num_scheduled_tokens
        if output.has_sync_kv_loads:
            self._start_loads(scheduled)
        for request_id, drafts in output.scheduled_spec_decode_tokens.items():
            # The engine pads with -1 where the drafter had nothing to say.
            self.rows[request_id].drafts = [max(token, 0) for token in drafts]
        for request_id, num_tokens in scheduled.items():
            self._forward(request_id, num_tokens)
        if not output.has_sync_kv_loads:
            self._start_loads(scheduled)
        self._connector.wait_for_save()
        kv_output = self._collect(output)
        return self._model_output(output, kv_output)

    # -- tables --------------------------------------------------------------------

    def _update_rows(self, output: Any, requests: dict[str, Any]) -> None:
        for request_id in output.finished_req_ids:
            self.rows.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            self._admit(new.req_id, new.block_ids, new.num_computed_tokens, requests)
        cached = output.scheduled_cached_reqs
        for place, request_id in enumerate(cached.req_ids):
            blocks = cached.new_block_ids[place]
            computed = cached.num_computed_tokens[place]
            if request_id in cached.resumed_req_ids:
                self._admit(request_id, blocks, computed, requests)
                continue
            row = self.rows[request_id]
            row.computed = computed
            for table, new_ids in zip(row.tables, blocks or (), strict=False):
                table.extend(new_ids)

    def _admit(
        self, request_id: str, blocks: Any, computed: int, requests: dict[str, Any]
    ) -> None:
        request = requests[request_id]
        identity = request.identity + (self.epoch << 32)
        tables = [list(ids) for ids in blocks]
        self.rows[request_id] = Row(tables, request.tokens, identity, computed)

    # -- reads and writes ----------------------------------------------------------

    def _forward(self, request_id: str, num_tokens: int) -> None:
        row = self.rows[request_id]
        first = row.computed
        thorough = row.is_fresh or self._rng.random() < 0.05
        for group_id in self._groups:
            self._check(request_id, group_id, first, thorough=thorough)
        row.is_fresh = False
        for group_id in self._groups:
            self._write(row, group_id, first, first + num_tokens)

    def _check(
        self, request_id: str, group_id: int, first: int, *, thorough: bool
    ) -> None:
        """Compare what computing token ``first`` reads with what it must be."""
        row = self.rows[request_id]
        group = self._groups[group_id]
        low = self._first_read(group, first)
        for view, seeds in self._device.group_pages[group_id]:
            ratio = view.tokens_per_unit
            if keeps_running_state(group):
                self._check_state(row, group_id, first)
                continue
            units = np.arange(-(-low // ratio), first // ratio)
            if not thorough and len(units) > 6:
                picked = self._rng.sample(range(len(units)), 3)
                units = units[sorted({0, len(units) - 2, len(units) - 1, *picked})]
            if not len(units):
                continue
            table = np.asarray(row.tables[group_id])
            blocks = table[units // view.num_units]
            values = row.value_of((units + 1) * ratio - 1)
            wrong = view.count_wrong(blocks, units % view.num_units, values, seeds)
            self.num_units_checked += len(units)
            if wrong:
                raise WrongBytesError(
                    f"request {request_id} computes token {first}: {wrong} of "
                    f"{len(units)} entries of group {group_id} in tokens "
                    f"[{low}, {first}) are not what its prefix demands"
                )

    def _first_read(self, group: GroupLayout, query: int) -> int:
        """First token that computing ``query`` reads, by what the layer really does."""
        ratio = self._ratios.get(group.group_id)
        if ratio is None:
            return first_token_read(group, query)
        overlap = (group.span_tokens or 1) - 1  # the cut window is the overlap and one
        return first_token_read_by_compressor(ratio, overlap, query)

    def _check_state(self, row: Row, group_id: int, first: int) -> None:
        """The running state lies in the block of the last computed token."""
        if not first:
            return
        block = row.tables[group_id][
            (first - 1) // self._groups[group_id].tokens_per_block
        ]
        last = np.array([first - 1])
        for view, seeds in self._device.group_pages[group_id]:
            self.num_units_checked += 1
            if view.count_wrong(
                np.array([block]), np.array([0]), row.value_of(last), seeds
            ):
                raise WrongBytesError(
                    f"token {first} resumes group {group_id} from a state that its "
                    "prefix does not demand"
                )

    def _write_state(self, row: Row, group_id: int, end: int) -> None:
        """The state after the last token goes to that token's block."""
        block = row.tables[group_id][
            (end - 1) // self._groups[group_id].tokens_per_block
        ]
        last = np.array([end - 1])
        for view, seeds in self._device.group_pages[group_id]:
            view.write(np.array([block]), np.array([0]), row.value_of(last), seeds)

    def _write(self, row: Row, group_id: int, first: int, end: int) -> None:
        """Compute tokens ``[first, end)``: fill the entries they complete."""
        if keeps_running_state(self._groups[group_id]):
            self._write_state(row, group_id, end)
            return
        table = np.asarray(row.tables[group_id])
        for view, seeds in self._device.group_pages[group_id]:
            ratio = view.tokens_per_unit
            units = np.arange(first // ratio, end // ratio)
            blocks = table[units // view.num_units]
            units, blocks = units[blocks > 0], blocks[blocks > 0]
            if len(units):
                values = row.value_of((units + 1) * ratio - 1)
                view.write(blocks, units % view.num_units, values, seeds)

    # -- the connector -------------------------------------------------------------

    def _start_loads(self, scheduled: dict[str, int]) -> None:
        context = SimpleNamespace(attn_metadata=True if scheduled else None)
        self._connector.start_load_kv(context)

    def _collect(self, output: Any) -> KVConnectorOutput:
        connector, results = self._connector, KVConnectorOutput()
        transfers = connector.get_transfer_results(output.finished_req_ids)
        results.finished_sending = transfers.finished_sending
        results.finished_recving = transfers.finished_recving
        results.failed_recving = transfers.failed_recving
        results.invalid_block_ids = connector.get_block_ids_with_load_errors()
        results.kv_connector_stats = connector.get_kv_connector_stats()
        results.kv_connector_worker_meta = connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        return results

    def _model_output(
        self, output: Any, kv_output: KVConnectorOutput
    ) -> ModelRunnerOutput:
        request_ids = list(output.num_scheduled_tokens)
        sampled = []
        for request_id in request_ids:
            row = self.rows[request_id]
            end = row.computed + output.num_scheduled_tokens[request_id]
            is_complete = end - len(row.drafts) >= len(row.tokens)
            sampled.append(self._sample(row) if is_complete else [])
        return ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={r: i for i, r in enumerate(request_ids)},
            sampled_token_ids=sampled,
            kv_connector_output=kv_output,
        )

    def _sample(self, row: Row) -> list[int]:
        """Some of the drafts, from the first on, and one token more."""
        num_accepted = self._rng.randint(0, len(row.drafts))
        tokens = [*row.drafts[:num_accepted], self._rng.randrange(4)]
        row.accept(tokens)
        return tokens

    def propose(self, output: Any, num_tokens: int) -> DraftTokenIds:
        """Guesses for the next step of every request that ran in this one."""
        request_ids = list(output.num_scheduled_tokens)
        guesses = [
            [self._rng.randrange(4) for _ in range(num_tokens)] for _ in request_ids
        ]
        return DraftTokenIds(request_ids, guesses)
