"""Rows about what is accepted at start, what is refused, and what is said about it."""

import importlib
import logging
from types import SimpleNamespace
from unittest import mock

import pytest

from kvcellar.config import settings_from_extra_config
from kvcellar.errors import CellarError, ConfigError, IncompatibleError
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config

pytest.importorskip("vllm")

import torch
from own_layouts import hybrid_layers
from scripted import prompt
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
from vllm.v1.kv_cache_interface import (
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVQuantMode,
)

from kvcellar.integrations.vllm.compat import cache_planning
from kvcellar.integrations.vllm.translate import layer_payload_bytes
from kvcellar.layout.groups import AttentionKind
from kvcellar.testing.oracle.layouts.specs import SMALL, Heads, full, stack, window

_engine = importlib.import_module("kvcellar.testing.oracle.layouts.engine")


def config_of(*specs):
    """The engine's configuration of one layer per group."""
    groups = [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=2, kv_cache_tensors=[], kv_cache_groups=groups)


def ring(block_tokens):
    return CircularBufferSpec(
        block_size=block_tokens,
        num_kv_heads=1,
        head_size=8,
        head_size_v=0,
        dtype=torch.float32,
    )


@pytest.fixture
def warnings_said():
    """What the connector warns of, as texts."""
    texts = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("vllm.kvcellar")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


def test_vllm_54743_a_scratch_group_need_not_fit_the_hash_unit():
    """full(16) and ring(4) at 16: accepted, and only group 0 takes part."""
    layout = layout_from_kv_cache_config(
        config_of(full(SMALL, 16), ring(4)), hash_block_tokens=16
    )
    assert [0] == [group.group_id for group in layout.groups]


def test_vllm_54743_a_block_that_the_hash_unit_cuts_is_refused():
    """full(24) and swa(16) at 16: the group, both numbers, and what to change."""
    config = config_of(full(SMALL, 24), window(SMALL, 64, 16))
    with pytest.raises(CellarError, match=r"16 .*24 tokens of group 0; use a divisor"):
        layout_from_kv_cache_config(config, hash_block_tokens=16)
    with pytest.raises(IncompatibleError, match=r"group 0 .* 24 .* 16; set the"):
        layout_from_kv_cache_config(config, hash_block_tokens=16, alignment_tokens=48)


@pytest.mark.parametrize("value", ["false", "true", 0, None])
def test_vllm_52656_the_text_false_is_not_a_switch(value):
    """lazy_offload = "false" is refused, and so never read as true."""
    with pytest.raises(ConfigError, match=r"lazy_offload=.* true or false, without"):
        settings_from_extra_config({"lazy_offload": value})


def test_vllm_51161_an_unknown_kind_is_refused_by_name():
    """Group, class, and what is supported instead."""
    spiral = type("SpiralAttentionSpec", (SimpleNamespace,), {})
    spec = spiral(block_size=16, prefix_cacheable=True)
    config = SimpleNamespace(
        kv_cache_groups=[SimpleNamespace(layer_names=["a"], kv_cache_spec=spec)],
        kv_cache_tensors=[],
    )
    with pytest.raises(
        IncompatibleError, match=r"group 0 is a Spiral.* supported: Chunked.*Sliding"
    ):
        layout_from_kv_cache_config(config, hash_block_tokens=16, alignment_tokens=16)


def test_vllm_48412_scales_in_the_cell_are_counted():
    """Head size 64, two heads, blocks of 16, fp8 with a scale per head: 4352 bytes."""
    spec = FullAttentionSpec(
        block_size=16,
        num_kv_heads=2,
        head_size=64,
        dtype=torch.uint8,
        kv_quant_mode=KVQuantMode.FP8_PER_TOKEN_HEAD,
    )
    with_scales = TritonAttentionBackend.customize_spec(spec)
    assert 4352 == layer_payload_bytes(with_scales, "layer0")
    group = layout_from_kv_cache_config(config_of(with_scales)).groups[0]
    assert 4352 == group.payload_bytes


def test_vllm_42348_two_head_sizes_are_two_groups(engine):
    """full(32) of heads of 512 and swa(16, 1024) of 256, equal pages: accepted."""
    layers = stack("FW", F=full(Heads(1, 512), 32), W=window(Heads(4, 256), 1024, 16))
    assert 1 == len({spec.page_size_bytes for spec in layers.values()})
    run = engine(layers, prompt_tokens=1200)
    kinds = {group.kind for group in run.planner.layout.groups}
    assert {AttentionKind.FULL, AttentionKind.WINDOW} == kinds
    tokens = prompt(1200)
    run.ask(tokens)
    run.drop_device()
    assert 1184 == run.ask(tokens).loaded_tokens


def test_vllm_42024_offload_leaves_the_groups_as_they_are():
    """18 full and 18 windowed layers: the same split with and without kvcellar."""
    layers = stack("WF" * 18, F=full(SMALL, 16), W=window(SMALL, 128, 16))

    def split(connector):
        recipe = SimpleNamespace(kv_cache_layout="LBNHC", num_draft_tokens=0)
        limits = _engine.EngineLimits(1024, 8, 256, async_scheduling=False)
        with mock.patch.object(_engine, "_connector", connector):
            config = _engine.engine_config(recipe, layers, limits, {})
        groups = cache_planning().get_kv_cache_groups(config, dict(layers))
        return [(type(g.kv_cache_spec).__name__, g.layer_names) for g in groups]

    with_us = split(_engine._connector)
    assert with_us == split(lambda _: None)
    assert {"FullAttentionSpec", "SlidingWindowSpec"} == {name for name, _ in with_us}


def test_vllm_52022_a_store_threshold_is_refused_and_not_ignored():
    """The key of vLLM's connector has no meaning here, and that is said."""
    with pytest.raises(ConfigError, match="store_threshold=2 belongs to vLLM's"):
        settings_from_extra_config({"store_threshold": 2})


@pytest.mark.parametrize("key", ["min_load_tokens", "max_load_tokens"])
def test_vllm_57959_negative_bounds_are_refused_when_read(key):
    """A bound in tokens is at least 0."""
    with pytest.raises(ConfigError, match=f"{key}=-1 .* at least 0"):
        settings_from_extra_config({key: -1})


def test_vllm_53902_a_chunk_longer_than_any_request_is_warned_of(engine, warnings_said):
    """Chunks of 3200 tokens, requests of at most 2048: a warning with both numbers."""
    layers = stack("FF", F=full(SMALL, 16))
    run = engine(
        layers, prompt_tokens=1000, max_model_len=2048, extra={"chunk_tokens": 3200}
    )
    run.ask(prompt(1000))
    assert [text for text in warnings_said if "3200" in text and "2048" in text]


def test_vllm_48401_blocks_longer_than_any_request_are_warned_of(engine, warnings_said):
    """Blocks of 8320 tokens, requests of at most 4096: a warning with both numbers."""
    run = engine(hybrid_layers(8320), prompt_tokens=2000, max_model_len=4096)
    run.ask(prompt(2000))
    assert [text for text in warnings_said if "8320" in text and "4096" in text]


@pytest.mark.parametrize(
    ("dense", "step_tokens", "hit"), [(False, 4096, 0), (True, 512, 512)]
)
def test_vllm_48401_which_states_the_engine_keeps_decides(
    engine, dense, step_tokens, hit
):
    """ssm(512), 1000 of 1600 shared: the last state alone hits 0, one each 512, 512."""
    run = engine(
        hybrid_layers(512),
        prompt_tokens=1700,
        max_num_batched_tokens=step_tokens,
        dense=dense,
    )
    shared = prompt(1000)
    run.ask(shared + prompt(600, 1))
    run.drop_device()
    assert hit == run.ask(shared + prompt(600, 2)).loaded_tokens
