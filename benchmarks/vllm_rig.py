"""vLLM's own cache manager and request objects, driven without an engine.

What a scheduler does around a connector, and nothing else: look up, allocate, build the
step's metadata, advance, finish. Only scheduler sides run; no byte is copied.
"""

import copy
import itertools
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from models import Model
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import (
    CachedRequestData,
    NewRequestData,
    SchedulerOutput,
)
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus

MAX_MODEL_TOKENS = 2**21
STEP_TOKENS = 8192

register_all_kvcache_specs(SimpleNamespace())
init_none_hash(sha256)
_ids = itertools.count()


def kv_cache_config(
    model: Model, num_blocks: int, retention_tokens: int | None = 0
) -> KVCacheConfig:
    """The model's groups as vLLM describes them, one layer each.

    Args:
        retention_tokens: vLLM's ``prefix_cache_retention_interval``; 0 is its default.
    """
    layout = model.layout
    groups = [
        KVCacheGroupSpec([f"layer{group.group_id}"], _spec(model, position))
        for position, group in enumerate(layout.groups)
    ]
    tensor = KVCacheTensor(
        size=model.row_bytes * num_blocks,
        layers=[f"layer{group.group_id}" for group in layout.groups],
        layer_stride=model.row_bytes,
        block_stride=model.row_bytes,
    )
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[tensor],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=retention_tokens,
        hash_block_size=layout.hash_block_tokens,
        cache_hit_alignment_tokens=layout.alignment_tokens,
    )


def _spec(model: Model, position: int) -> Any:
    group = model.layout.groups[position]
    fields = {
        "block_size": group.tokens_per_block,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.uint8,
        "page_size_padded": group.padded_bytes,
    }
    if group.span_tokens is None:
        return (MLAAttentionSpec if model.is_mla else FullAttentionSpec)(**fields)
    fields["sliding_window"] = group.span_tokens
    return (SlidingWindowMLASpec if model.is_mla else SlidingWindowSpec)(**fields)


def vllm_config(
    model: Model, extra: dict[str, Any], retention_tokens: int | None = 0
) -> Any:
    """What the scheduler sides read of a ``VllmConfig``."""
    parallel = SimpleNamespace(
        decode_context_parallel_size=1,
        prefill_context_parallel_size=1,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        world_size=1,
        distributed_executor_backend="mp",
        nnodes_within_dp=1,
        rank=0,
        data_parallel_index=0,
        data_parallel_size=1,
        data_parallel_rank_local=None,
    )
    cache = SimpleNamespace(
        block_size=model.layout.hash_block_tokens,
        enable_prefix_caching=True,
        prefix_match_unit=None,
        cache_dtype="auto",
        kv_cache_layout="LBHNC",
        prefix_cache_retention_interval=retention_tokens,
    )
    return SimpleNamespace(
        kv_events_config=None,
        speculative_config=None,
        use_v2_model_runner=False,
        max_in_flight_tokens=STEP_TOKENS,
        num_prefill_lookahead_tokens=0,
        parallel_config=parallel,
        cache_config=cache,
        scheduler_config=SimpleNamespace(max_num_batched_tokens=STEP_TOKENS),
        model_config=SimpleNamespace(
            max_model_len=MAX_MODEL_TOKENS,
            use_mla=model.is_mla,
            model=model.name,
            dtype=torch.bfloat16,
            get_total_num_kv_heads=lambda: 1,
        ),
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config=extra,
            kv_load_failure_policy="recompute",
            engine_id="benchmark",
        ),
    )


def cache_manager(
    model: Model, config: KVCacheConfig, *, has_events: bool = False
) -> KVCacheManager:
    """The engine's block tables, pool and prefix cache.

    Args:
        has_events: whether it notes KV events for ``take_events``.
    """
    return KVCacheManager(
        config,
        max_model_len=MAX_MODEL_TOKENS,
        scheduler_block_size=model.layout.scheduler_block_tokens,
        hash_block_size=model.layout.hash_block_tokens,
        enable_caching=True,
        enable_kv_cache_events=has_events,
        max_in_flight_tokens=STEP_TOKENS,
    )


def make_request(model: Model, num_tokens: int, seed: int = 0) -> Request:
    """A prompt whose tokens differ for every seed, hashed as the engine does."""
    first = seed * MAX_MODEL_TOKENS
    return Request(
        request_id=f"request-{next(_ids)}",
        prompt_token_ids=list(range(first, first + num_tokens)),
        sampling_params=SamplingParams(max_tokens=1 << 20),
        pooling_params=None,
        block_hasher=get_request_block_hasher(model.layout.hash_block_tokens, sha256),
    )


def same_prompt(request: Request) -> Request:
    """Another request for the same prompt, as if hashed anew: no object is shared."""
    other = copy.copy(request)
    other.request_id = f"request-{next(_ids)}"
    other.block_hashes = [bytes(bytearray(h)) for h in request.block_hashes]
    return other


def first_step(manager: KVCacheManager, request: Request, num_tokens: int) -> Any:
    """The ``SchedulerOutput`` of a step that starts ``request``."""
    new = NewRequestData.from_request(
        request, manager.get_block_ids(request.request_id)
    )
    return _output(new=[new], scheduled={request.request_id: num_tokens})


def first_steps(manager: KVCacheManager, requests: Sequence[Request]) -> Any:
    """The ``SchedulerOutput`` of a step that computes all of these prompts."""
    return _output(
        new=[
            NewRequestData.from_request(r, manager.get_block_ids(r.request_id))
            for r in requests
        ],
        scheduled={r.request_id: r.num_tokens for r in requests},
    )


def later_step(
    requests: Sequence[Request], new_blocks: Sequence[Any], num_tokens: int
) -> Any:
    """The ``SchedulerOutput`` of a step in which running requests go on.

    Args:
        new_blocks: per request what ``allocate_slots`` returned.
        num_tokens: tokens that each of them computes.
    """
    cached = CachedRequestData(
        req_ids=[r.request_id for r in requests],
        resumed_req_ids=set(),
        new_token_ids=[],
        all_token_ids={},
        new_block_ids=[b.get_block_ids(allow_none=True) for b in new_blocks],
        num_computed_tokens=[r.num_computed_tokens for r in requests],
        num_output_tokens=[r.num_output_tokens for r in requests],
    )
    return _output(
        cached=cached, scheduled={r.request_id: num_tokens for r in requests}
    )


def empty_step(finished: Iterable[str] = ()) -> Any:
    """The ``SchedulerOutput`` of a step that runs nothing."""
    return _output(finished=finished)


def _output(
    *,
    new: Sequence[Any] = (),
    cached: Any = None,
    scheduled: dict[str, int] | None = None,
    finished: Iterable[str] = (),
) -> SchedulerOutput:
    scheduled = scheduled or {}
    return SchedulerOutput(
        scheduled_new_reqs=list(new),
        scheduled_cached_reqs=cached or CachedRequestData.make_empty(),
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        scheduled_spec_decode_tokens={},
        scheduled_encoder_inputs={},
        finished_req_ids=set(finished),
        free_encoder_mm_hashes=[],
    )


def end(request: Request) -> None:
    """Mark a request as finished in the ordinary way."""
    request.status = RequestStatus.FINISHED_STOPPED
