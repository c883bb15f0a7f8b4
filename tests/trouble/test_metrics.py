"""Rows about counters: they add up, and say what is there."""

import pytest

pytest.importorskip("vllm")

import torch
from scripted import prompt
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.metrics.stats import PrefixCacheStats

from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

FULL_16 = stack("FF", F=full(SMALL, 16))


def totals(run):
    """(local queries, local hits, external queries, external hits) so far."""
    local, external = PrefixCacheStats(), PrefixCacheStats()
    for stats in filter(None, run.stats):
        for total, one in (
            (local, stats.prefix_cache_stats),
            (external, stats.connector_prefix_cache_stats),
        ):
            if one is not None:
                total.queries += one.queries
                total.hits += one.hits
    return local.queries, local.hits, external.queries, external.hits


def counted(run, name):
    """A counter of ours, summed over the steps."""
    found = (s.kv_connector_stats for s in run.stats if s and s.kv_connector_stats)
    return sum(data.get(name, 0) for data in found)


def test_vllm_30522_local_external_and_computed_add_up(engine):
    """1000 tokens, 600 on the device and 200 more on the host: 200 are computed."""
    run = engine(stack("FF", F=full(SMALL, 8)), prompt_tokens=1200)
    tokens = prompt(1000)
    run.ask(tokens[:801])
    run.forget_on_device(keep_tokens=600)
    run.stats.clear()
    answer = run.ask(tokens)
    assert (1000, 600, 400, 200) == totals(run)
    assert 200 == counted(run, "kvcellar_loaded_tokens_total")
    assert (600, 200) == (answer.local_tokens, answer.loaded_tokens)


def test_vllm_57596_a_request_that_skips_reading_counts_nothing_here(engine):
    """The same 401 tokens three times, unread: no look-up, no hit, no load of ours."""
    run = engine(FULL_16, prompt_tokens=500)
    tokens = prompt(401)
    for _ in range(3):
        assert 0 == run.ask(tokens, skip=True).hit_tokens
    local_queries, local_hits, _, external_hits = totals(run)
    assert (0, 0, 0) == (local_queries, local_hits, external_hits)
    assert 0 == counted(run, "kvcellar_loaded_tokens_total")


def test_llm_d_router_1650_the_size_behind_the_usage_is_exported(engine):
    """A router must be able to read how much the host tier holds, not only its use."""
    run = engine(FULL_16, prompt_tokens=200)
    run.ask(prompt(65))
    arena_bytes = run.planner.slabs.geometry.arena_bytes
    assert arena_bytes == counted(run, "kvcellar_host_capacity_bytes")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8]
)
def test_syv_ai_qwen38_33_what_is_stored_is_matched_whatever_its_format(engine, dtype):
    """N stores, the device forgets, and the repeat hits, for every cache format."""
    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8, dtype=dtype)
    run = engine(stack("FF", F=spec), prompt_tokens=200)
    tokens = prompt(161)
    run.ask(tokens)
    run.drop_device()
    assert 160 == run.ask(tokens).loaded_tokens
    assert 10 == counted(run, 'kvcellar_stores_total{kind="chunk"}')
