"""Every place where we lean on the inside of vLLM rather than on its contract.

Tested with vLLM 0.32; a version that moves one of these fails here, with its name.
"""

import importlib
import importlib.util
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvcellar.errors import IncompatibleError

_PLANNING = "vllm.v1.core.kv_cache_planning"  # from 0.33 on
_CACHE_UTILS = "vllm.v1.core.kv_cache_utils"
_NUMBER = struct.Struct(">Q")


def cache_planning() -> Any:
    """The module that groups a model's layers and plans its cache.

    Source: v1/core/kv_cache_utils.py, vLLM 0.32; v1/core/kv_cache_planning.py, 0.33.
    """
    has_own = importlib.util.find_spec(_PLANNING) is not None
    return importlib.import_module(_PLANNING if has_own else _CACHE_UTILS)


def plan_ranks(
    vllm_config: Any, layers_by_rank: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """The ``KVCacheConfig`` that the engine makes for each rank.

    The number of blocks must be set in the configuration; no memory is looked at.

    Args:
        layers_by_rank: specs of the layers of each rank, by the layer's name.

    Source: EngineCore._initialize_kv_caches, v1/engine/core.py; vLLM 0.33 groups the
    layers in a step of its own before.
    """
    planning = cache_planning()
    ranks = [dict(layers) for layers in layers_by_rank]
    arguments = [vllm_config, ranks, [0] * len(ranks)]
    if hasattr(planning, "get_global_kv_cache_groups"):
        arguments.append(planning.get_global_kv_cache_groups(vllm_config, ranks))
    configs: list[Any] = planning.get_kv_cache_configs(*arguments)
    return configs


def as_draft_layer(spec: Any) -> Any:
    """A layer's spec, marked as a drafter's where the engine wants that.

    Source: is_draft, v1/worker/gpu/attn_utils.py, vLLM 0.33; 0.32 finds drafters by the
    place of their layers.
    """
    return replace(spec, is_draft=True) if hasattr(spec, "is_draft") else spec


def saves_after_drafting(*, is_v2: bool) -> bool:
    """Whether a model runner asks for results before stores, if it has a drafter.

    Source: finalize_step, v1/worker/gpu/kv_connector.py, vLLM 0.33 and the first
    runner of both versions; in 0.32 the second runner queues stores first.
    """
    return not is_v2 or hasattr(_second_runner_connector(), "finalize_step")


def _second_runner_connector() -> Any:
    return importlib.import_module("vllm.v1.worker.gpu.kv_connector").KVConnector


def event_hash_converter() -> Callable[[Sequence[bytes]], list[Any]]:
    """The engine's way to name block hashes in its events, without its detours.

    Its own function reads an environment variable for every block.
    Source: maybe_convert_block_hash, v1/core/kv_cache_utils.py, vLLM 0.32.
    """
    utils = importlib.import_module(_CACHE_UTILS)
    convert: Callable[[bytes], Any] = utils.maybe_convert_block_hash
    sample = bytes(range(32))
    ways: tuple[Callable[[Sequence[bytes]], list[Any]], ...] = (_last_bytes, list)
    for way in ways:
        if way([sample]) == [convert(sample)]:
            return way
    return lambda block_hashes: [convert(one) for one in block_hashes]


def _last_bytes(block_hashes: Sequence[bytes]) -> list[Any]:
    number = _NUMBER.unpack_from
    return [number(one, -8)[0] for one in block_hashes]


def engine_number(vllm_config: Any) -> int:
    """Which of a data-parallel server's engines this is.

    The rank would be 0 in each of them: the engines of a dense model are told that they
    are alone, and only the index says which one it is.
    Source: EngineCoreProc.run_engine_core, v1/engine/core.py, vLLM 0.32.
    """
    parallel = vllm_config.parallel_config
    return int(getattr(parallel, "data_parallel_index", parallel.data_parallel_rank))


def group_managers(kv_cache_manager: Any) -> Sequence[Any]:
    """One manager per cache group; ``req_to_blocks`` maps a request to its table.

    Raises:
        IncompatibleError: this vLLM keeps its block tables elsewhere.
    """
    coordinator = getattr(kv_cache_manager, "coordinator", None)
    managers = getattr(coordinator, "single_type_managers", None)
    if not managers or not hasattr(managers[0], "req_to_blocks"):
        raise IncompatibleError(
            "this vLLM does not keep its block tables where kvcellar looks for them "
            "(coordinator.single_type_managers[i].req_to_blocks); use vLLM 0.32"
        )
    return tuple(managers)


def state_group_tokens(managers: Sequence[Any]) -> dict[int, int]:
    """Tokens per block of the groups whose tables do not say what a block holds."""
    return {
        group_id: manager.block_size
        for group_id, manager in enumerate(managers)
        if not getattr(manager, "has_positionally_stable_blocks", True)
    }


def writes_blocks_early(vllm_config: Any) -> bool:
    """Whether the workers write blocks before they tell their connector of a step.

    vLLM's second model runner zeroes new blocks, copies blocks for hits that end
    inside one, and moves recurrent state to new blocks, before ``handle_preemptions``;
    the first one tells the connector first.
    Source: GPUModelRunner.update_requests and execute_model, v1/worker/gpu, vLLM 0.32.
    """
    return bool(getattr(vllm_config, "use_v2_model_runner", False))


def blocks_written_early(
    scheduler_output: Any, state_group_ids: Iterable[int]
) -> set[int]:
    """Device blocks that the workers may write in a step before its forward.

    Args:
        scheduler_output: of the step.
        state_group_ids: groups of recurrent state; any of their new blocks counts.
    """
    zeroed = scheduler_output.new_block_ids_to_zero or ()
    copies = scheduler_output.kv_cache_block_copies or ()
    written = {*zeroed, *(copy.dst_block_id for copy in copies)}
    tables = [new.block_ids for new in scheduler_output.scheduled_new_reqs]
    tables += scheduler_output.scheduled_cached_reqs.new_block_ids
    for group_id in state_group_ids:
        for table in tables:
            written.update(table[group_id] if table else ())
    return written


class EngineTables:
    """One request's block tables, read where the engine keeps them.

    Valid within one scheduler call only; nothing is copied.
    """

    __slots__ = ("_rows",)

    def __init__(self, managers: Sequence[Any], request_id: str) -> None:
        self._rows = [m.req_to_blocks.get(request_id, ()) for m in managers]

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """Device block ids; 0 beyond the table and where the window has moved on.

        The engine's null block has id 0 and is never transferred.
        """
        row = self._rows[group_id]
        found = [block.block_id for block in row[indices.start : indices.stop]]
        return found + [0] * (len(indices) - len(found))

    def cached_keys(self) -> list[bytes]:
        """Keys of all blocks of the request that the prefix cache holds."""
        rows = self._rows
        return [b.block_hash for row in rows for b in row if b.block_hash is not None]

    def is_kept(self, group_id: int, index: int) -> bool:
        """Whether the engine's prefix cache holds the block."""
        row = self._rows[group_id]
        return index < len(row) and row[index].block_hash is not None


class StepTables(EngineTables):
    """Block tables of a request in the step that computes its tokens.

    Recurrent state is overwritten in place, so a table says nothing about which
    boundary a state block stands for. Only the blocks that the engine hands over hold
    a boundary's state, until the step has run.
    """

    __slots__ = ("_handed_over", "_state_tokens")

    def __init__(
        self,
        managers: Sequence[Any],
        request_id: str,
        handed_over: Iterable[tuple[int, int, int]],
        state_tokens: Mapping[int, int],
    ) -> None:
        super().__init__(managers, request_id)
        self._state_tokens = state_tokens
        self._handed_over = {(g, tokens): block for g, block, tokens in handed_over}

    @property
    def boundaries(self) -> list[int]:
        """Boundaries whose state is handed over, in tokens."""
        return [tokens for _, tokens in self._handed_over]

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """As ``EngineTables``; for recurrent state what was handed over, or 0."""
        tokens_per_block = self._state_tokens.get(group_id)
        if tokens_per_block is None:
            return super().block_ids(group_id, indices)
        boundaries = [(index + 1) * tokens_per_block for index in indices]
        return [self._handed_over.get((group_id, b), 0) for b in boundaries]


class DeviceBlocks:
    """The engine's block pool: what its prefix cache holds, and what copies read.

    A source that the prefix cache holds is *fenced*: not referenced, since dropping a
    reference later would put it in another place of the free queue than the engine
    would have. ``overtaken`` tells when the engine has given one away, so that the copy
    can be made to end before the block is written. A source that the cache does not
    hold goes back to the head of the queue whenever it is freed: it is *pinned* by a
    reference, so that it is not freed before the copy has ended.
    """

    def __init__(self, block_pool: Any) -> None:
        self._pool = block_pool
        self._pinned: dict[int, list[Any]] = {}
        self._fenced: dict[int, list[tuple[Any, bytes]]] = {}

    def find(self, group_id: int, block_hash: bytes) -> int:
        """A block that holds this content now; 0 if there is none.

        Source of the key: make_block_hash_with_group_id, vLLM 0.32.
        """
        cached = self._pool.cached_block_hash_to_block  # a reset makes a new one
        block = cached.get_one_block(block_hash + group_id.to_bytes(4, "big"))
        return block.block_id if block is not None else 0

    def hold(self, job_id: int, groups: Sequence[Sequence[int]]) -> None:
        """Keep a job's sources until ``release``; ids per group in table order.

        References are dropped tail first within each group, as the engine frees.
        """
        blocks = self._pool.blocks
        held = [blocks[b] for group in groups for b in reversed(group)]
        pinned = [b for b in held if b.block_hash is None]
        self._fenced[job_id] = [
            (b, b.block_hash) for b in held if b.block_hash is not None
        ]
        if pinned:
            self._pool.touch(pinned)
            self._pinned[job_id] = pinned

    def release(self, job_id: int) -> None:
        """The job has ended."""
        self._fenced.pop(job_id, None)
        blocks = self._pinned.pop(job_id, None)
        if blocks:
            self._pool.free_blocks(blocks)

    def overtaken(self) -> dict[int, set[int]]:
        """Jobs with a fenced block that the engine has given away since.

        Returns:
            Ids of all fenced blocks of each such job.
        """
        jobs = {
            job_id: {block.block_id for block, _ in watched}
            for job_id, watched in self._fenced.items()
            # Given away and computed again it has an equal key, but not the same one.
            if any(block.block_hash is not key for block, key in watched)
        }
        for job_id in jobs:
            del self._fenced[job_id]
        return jobs

    def holds_last_reference(self) -> bool:
        """Whether some block would become free if its copy ended."""
        return any(b.ref_cnt == 1 for blocks in self._pinned.values() for b in blocks)

    @property
    def num_blocks(self) -> int:
        """All blocks but the null block, which is never given away."""
        return len(self._pool.blocks) - 1

    @property
    def num_free(self) -> int:
        """Blocks that the engine can give away now."""
        return int(self._pool.get_num_free_blocks())

    def front_of_free_queue(self, count: int) -> list[Any]:
        """The first ``count`` blocks that the engine will give away, in order."""
        front: list[Any] = []
        block = self._pool.free_block_queue.fake_free_list_head.next_free_block
        while block.next_free_block is not None and len(front) < count:
            front.append(block)
            block = block.next_free_block
        return front
