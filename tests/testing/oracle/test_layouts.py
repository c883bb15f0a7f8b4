"""The oracle's layouts: the groups of the published models, small or at full size."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.translate import (
    layout_from_kv_cache_config,
)
from kvcellar.layout.groups import CacheLayout

pytest.importorskip("vllm")

import torch
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import iter_layer_specs
from vllm.v1.request import Request

from kvcellar.testing.oracle.layouts import LAYOUT_NAMES, OracleLayout, build, recurrent
from kvcellar.testing.oracle.layouts.capacity import ANSWER_TOKENS

EXTRA = {"host_memory": "64MiB"}

KIND_BY_CLASS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "window",
    "SlidingWindowMLASpec": "window-mla",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "state",
    "CircularBufferSpec": "ring",
}

# Kind, tokens per block / span, layers; then (hash, alignment, scheduler) tokens.
GROUPS: dict[str, list[str]] = {
    "deepseek-v4-flash": [
        "window-mla 64/128 x22",
        "window-mla 64/128 x21",
        "mla 256 x62",
        "window-mla 4/8 x42",
        "window-mla 8/128 x20",
    ],
    "deepseek-v4-flash-bf16": [
        "window-mla 64/128 x22",
        "window-mla 64/128 x21",
        "mla 256 x62",
        "window-mla 4/8 x42",
        "window-mla 8/128 x20",
    ],
    "deepseek-v4-flash-mtp": [
        "window-mla 64/128 x22",
        "window-mla 64/128 x22 draft",
        "mla 256 x62",
        "window-mla 4/8 x42",
        "window-mla 8/128 x20",
    ],
    "deepseek-v4.1": [
        *["window-mla 32/128 x6 scratch"] * 5,
        *["window-mla 32/128 x5 scratch"] * 2,
        "mla 64 x8",
        "ring 8 x3 scratch",
    ],
    "gpt-oss-20b": ["window 16/128 x12", "full 16 x12"],
    "gemma-3-27b": [
        *["window 16/1024 x9"] * 4,
        *["window 16/1024 x8"] * 2,
        "full 16 x10",
    ],
    "llama-4": [*["chunked 16/8192 x12"] * 3, "full 16 x12"],
    "deepseek-v3": ["mla 64 x61"],
    "llama-3.1-8b": ["full 16 x32"],
    "qwen3-next": [*["state 544 x12"] * 3, "full 544 x12"],
    "nemotron-h": [*["state 1040 x4"] * 6, "full 1040 x4"],
    "full24-swa16": ["full 24 x2", "window 16/40 x2"],
    "window-not-multiple": ["full 16 x2", "window 16/100 x2"],
    "coarse-alignment": ["full 64 x2", "window 16/32 x4"],
    "ring": ["full 32 x4", "window 64/128 x2", "ring 8 x2 scratch"],
    "window-1": ["full 16 x2", "window 16/1 x2"],
    "three-windows": [
        "full 16 x2",
        "window 16/24 x2",
        "window 16/64 x2",
        "window 16/160 x2",
    ],
    "full-two-pages": ["full 16 x4"],
    "chunked-odd": ["full 16 x2", "chunked 16/48 x2"],
    "short-states": ["state 16 x2", "state 16 x2", "full 16 x2"],
}
UNITS = dict.fromkeys(GROUPS, (16, 16, 16)) | {
    "deepseek-v4-flash": (4, 256, 256),
    "deepseek-v4-flash-bf16": (4, 256, 256),
    "deepseek-v4-flash-mtp": (4, 256, 256),
    "deepseek-v4.1": (64, 64, 64),
    "deepseek-v3": (64, 64, 64),
    "qwen3-next": (544, 544, 544),
    "nemotron-h": (1040, 1040, 1040),
    "full24-swa16": (8, 48, 48),
    "coarse-alignment": (16, 64, 64),
    "ring": (32, 64, 64),
}

every_layout = pytest.mark.parametrize("name", LAYOUT_NAMES)


def groups_of(layout: OracleLayout) -> list[str]:
    return [describe(group) for group in layout.worker_config.kv_cache_groups]


def describe(group: Any) -> str:
    """One group as in ``GROUPS``; all its layers must agree but for their bytes."""
    found = {kind_and_span(spec) for spec in iter_layer_specs(group.kv_cache_spec)}
    (text,) = found
    text += f" x{len(group.layer_names)}"
    text += " draft" if group.is_eagle_group else ""
    return text + ("" if group.kv_cache_spec.prefix_cacheable else " scratch")


def kind_and_span(spec: Any) -> str:
    kind = KIND_BY_CLASS[type(spec).__name__]
    span_name = "attention_chunk_size" if kind == "chunked" else "sliding_window"
    span = getattr(spec, span_name, None)
    return f"{kind} {spec.block_size}" + (f"/{span}" if span else "")


def without_counts(groups: list[str]) -> list[str]:
    return [" ".join(w for w in g.split() if w[0] != "x") for g in groups]


def units_of(layout: OracleLayout) -> tuple[int, int, int]:
    return (
        layout.hash_block_tokens,
        layout.worker_config.cache_hit_alignment_tokens,
        layout.scheduler_block_tokens,
    )


def page_shapes(layout: OracleLayout) -> list[tuple[int, bool]]:
    """Per group: how many page sizes, and whether any page is padded."""
    translated = {g.group_id: g for g in translate(layout).groups}
    return [
        (
            len({s.page_size_bytes for s in iter_layer_specs(group.kv_cache_spec)}),
            i in translated
            and translated[i].padded_bytes > translated[i].payload_bytes,
        )
        for i, group in enumerate(layout.worker_config.kv_cache_groups)
    ]


def translate(layout: OracleLayout) -> CacheLayout:
    return layout_from_kv_cache_config(layout.worker_config)


@pytest.mark.parametrize("is_small", [False, True])
@every_layout
def test_groups_and_units_are_those_of_the_architecture(name, is_small):
    """The engine cuts each layout, small or not, into the groups written down here."""
    layout = build(name, extra_config=EXTRA, is_small=is_small)
    if is_small:
        assert without_counts(groups_of(layout)) == without_counts(GROUPS[name])
    else:
        assert groups_of(layout) == GROUPS[name]
    assert units_of(layout) == UNITS[name]


@every_layout
def test_small_layout_keeps_pages_padding_order_and_blocks(name):
    """Small layouts have as many page sizes, the same padding, order and blocks."""
    small, large = (
        build(name, extra_config=EXTRA, is_small=is_small) for is_small in (True, False)
    )
    assert page_shapes(small) == page_shapes(large)
    assert small.worker_config.kv_cache_layout == large.worker_config.kv_cache_layout
    assert small.worker_config.num_blocks == large.worker_config.num_blocks
    assert small.prompt_tokens == large.prompt_tokens


@every_layout
def test_small_layout_fits_in_a_few_megabytes(name):
    """The default small device is at most 4 MiB, so many runs fit on one machine."""
    layout = build(name, extra_config=EXTRA)
    (num_bytes,) = {tensor.size for tensor in layout.worker_config.kv_cache_tensors}
    assert num_bytes <= 4 << 20


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_served_layouts_translate(name, is_small):
    """Every layout that kvcellar serves translates with the engine's units."""
    layout = build(name, extra_config=EXTRA, is_small=is_small)
    translated = translate(layout)
    assert translated.hash_block_tokens == layout.hash_block_tokens
    assert translated.scheduler_block_tokens == layout.scheduler_block_tokens
    num_scratch = sum("scratch" in text for text in GROUPS[name])
    assert len(translated.groups) == len(GROUPS[name]) - num_scratch


def test_deepseek_v4_flash_has_its_known_bytes():
    """256 tokens of chunks take 985,664 B, a checkpoint 15,420,416 B."""
    translated = translate(
        build("deepseek-v4-flash", extra_config=EXTRA, is_small=False)
    )
    (chunk_position,) = translated.chunk_positions
    assert translated.chunk_tokens == 256
    assert translated.cell_bytes(chunk_position) == 985_664
    needed = HybridRules(translated).checkpoint_blocks(1024)
    assert (
        sum(
            len(blocks) * translated.groups[position].payload_bytes
            for position, blocks in needed
        )
        == 15_420_416
    )


def test_recurrent_states_have_the_shapes_that_the_engine_computes():
    """State sizes, and with them the block sizes, follow from the models' numbers."""
    shapes = MambaStateShapeCalculator
    qwen = shapes.gated_delta_net_state_shape(1, 16, 32, 128, 128, 4)
    nemotron = shapes.mamba2_state_shape(1, 128 * 64, 8, 128, 64, 128, 4)
    assert tuple(shape for shape, _ in recurrent.QWEN3_NEXT_STATES) == qwen
    assert tuple(shape for shape, _ in recurrent.NEMOTRON_H_STATES) == nemotron
    assert recurrent.NEMOTRON_H_STATES[1][1] is torch.float32


@every_layout
def test_long_prompt_covers_alignment_units_and_windows(name):
    """A long prompt spans over four alignment units and more than any window."""
    layout = build(name, extra_config=EXTRA)
    spans = [g.span_tokens or 0 for g in translate(layout).groups]
    alignment = layout.worker_config.cache_hit_alignment_tokens
    assert layout.prompt_tokens > 4 * alignment
    assert layout.prompt_tokens > 2 * max(spans)


@pytest.mark.parametrize("num_prompts", [2, 3])
@every_layout
def test_device_holds_the_prompts_it_was_sized_for(name, num_prompts):
    """The engine's manager finds blocks for that many prompts and answers at once."""
    layout = build(name, extra_config=EXTRA, device_prompts=num_prompts)
    manager = make_manager(layout)
    for number in range(num_prompts):
        for has_blocks in serve(manager, layout, number):
            assert has_blocks


def make_manager(layout: OracleLayout) -> KVCacheManager:
    return KVCacheManager(
        layout.scheduler_config,
        max_model_len=layout.vllm_config.model_config.max_model_len,
        scheduler_block_size=layout.scheduler_block_tokens,
        hash_block_size=layout.hash_block_tokens,
        max_in_flight_tokens=layout.vllm_config.max_in_flight_tokens,
        enable_caching=False,
    )


def serve(manager: KVCacheManager, layout: OracleLayout, number: int) -> Iterator[bool]:
    """Prefill one long prompt in full steps, decode its answer; hold its blocks."""
    tokens = [number] * layout.prompt_tokens
    params = SamplingParams(max_tokens=ANSWER_TOKENS)
    request = Request(f"r{number}", tokens, params, None)
    limits = layout.vllm_config.scheduler_config
    most = limits.max_num_batched_tokens
    block = layout.worker_config.cache_hit_alignment_tokens
    step = max(most // block * block, min(most, block))
    while request.num_computed_tokens < layout.prompt_tokens + ANSWER_TOKENS:
        left = request.num_tokens - request.num_computed_tokens
        num_new = min(left, step)
        yield manager.allocate_slots(request, num_new) is not None
        request.num_computed_tokens += num_new
        if num_new == left:
            request.append_output_token_ids(0)


def test_device_size_can_be_given():
    """The number of blocks given wins over what prompts would need."""
    layout = build("gpt-oss-20b", extra_config=EXTRA, num_device_blocks=100)
    assert layout.worker_config.num_blocks == 100
    assert layout.scheduler_config.num_blocks == 100
    assert layout.vllm_config.cache_config.num_gpu_blocks == 100


def test_device_always_holds_the_longest_request():
    """However few prompts are wanted, one of the longest legal length fits."""
    few = build("llama-3.1-8b", extra_config=EXTRA, device_prompts=0.1)
    assert few.worker_config.num_blocks == math.ceil(2 * few.prompt_tokens / 16) + 1


def test_the_engine_refuses_a_device_too_small():
    """Fewer blocks than the longest request needs are the engine's own error."""
    with pytest.raises(ValueError, match="KV cache"):
        build("llama-3.1-8b", extra_config=EXTRA, num_device_blocks=5)


@pytest.mark.parametrize("name", ["gpt-oss-20b", "deepseek-v4-flash-mtp", "qwen3-next"])
def test_asynchronous_scheduling_counts_two_steps_in_flight(name):
    """With asynchronous scheduling windows hold two steps' tokens, and get the room."""
    plain = build(name, extra_config=EXTRA)
    ahead = build(name, extra_config=EXTRA, async_scheduling=True)
    assert ahead.vllm_config.scheduler_config.async_scheduling
    assert (
        ahead.vllm_config.max_in_flight_tokens
        == 2 * plain.vllm_config.max_in_flight_tokens
    )
    has_windows = name != "qwen3-next"
    more = ahead.worker_config.num_blocks > plain.worker_config.num_blocks
    assert more == has_windows


def test_limits_and_settings_reach_the_engine_configuration():
    """What is asked for is what the engine's configuration says."""
    layout = build(
        "three-windows",
        extra_config={"host_memory": "5MiB"},
        max_model_len=700,
        max_num_seqs=3,
        max_num_batched_tokens=48,
    )
    engine = layout.vllm_config
    assert engine.model_config.max_model_len == 700
    assert engine.scheduler_config.max_num_seqs == 3
    assert engine.scheduler_config.max_num_batched_tokens == 48
    assert not engine.scheduler_config.async_scheduling
    assert not engine.scheduler_config.disable_hybrid_kv_cache_manager
    extra = engine.kv_transfer_config.kv_connector_extra_config
    assert {"host_memory": "5MiB", "status_socket": False} == extra


@every_layout
def test_both_halves_see_the_same_units_and_blocks(name):
    """Worker and scheduler configurations agree on what the connector reads."""
    layout = build(name, extra_config=EXTRA)
    worker, scheduler = layout.worker_config, layout.scheduler_config
    for field in (
        "num_blocks",
        "kv_cache_layout",
        "hash_block_size",
        "cache_hit_alignment_tokens",
    ):
        assert getattr(worker, field) == getattr(scheduler, field) is not None
    assert [g.layer_names for g in worker.kv_cache_groups] == [
        g.layer_names for g in scheduler.kv_cache_groups
    ]


def test_builds_share_nothing_that_changes():
    """Two builds of one layout are equal in plan and separate in objects."""
    first, second = (build("ring", extra_config=EXTRA) for _ in range(2))
    assert dataclasses.replace(first.worker_config) == second.worker_config
    assert first.vllm_config.cache_config is not second.vllm_config.cache_config
    first.vllm_config.cache_config.num_gpu_blocks = 1
    assert second.vllm_config.cache_config.num_gpu_blocks != 1


def test_unknown_layout_is_refused_with_the_known_names():
    """A wrong name is answered with all the right ones."""
    with pytest.raises(ConfigError, match=r"no layout 'gpt-2'.*gpt-oss-20b, gemma"):
        build("gpt-2", extra_config=EXTRA)


def test_every_layout_is_written_down():
    """The golden tables cover exactly the layouts that can be built."""
    assert tuple(GROUPS) == LAYOUT_NAMES
