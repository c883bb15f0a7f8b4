"""A whole replay: tokens add up, both modes, and the reference curve."""

import gc
import gzip
import json
import os
import random
from array import array
from dataclasses import asdict
from pathlib import Path

import pytest
from cycles import unfreed
from layouts import FULL, LAYOUTS, group, layout_of

from kvcellar.config import Settings
from kvcellar.replay.configuration import (
    Configuration,
    make_memory,
    play_through,
    replay,
)
from kvcellar.replay.costs import CostModel
from kvcellar.replay.memory import Memory
from kvcellar.replay.readers import open_trace
from kvcellar.replay.server import ServerLimits
from kvcellar.replay.trace import Trace, TraceRequest

PLAIN = layout_of(group(0, FULL, 16, None, 16), hash_tokens=16, alignment=16)
COSTS = CostModel(1000.0, 0.02, 1e6, 1e6, 0.01)


def conversations(seed, num_requests=120, block_tokens=16):
    """Conversations that grow, branch and come back, in blocks of 16 tokens."""
    rng, paths, ids, requests = random.Random(seed), [[]], iter(range(10**6)), []
    now = 0.0
    for _ in range(num_requests):
        base = rng.choice(paths)
        path = base[: rng.randint(0, len(base))] if rng.random() < 0.3 else base
        path = [*path, *(next(ids) for _ in range(rng.randint(1, 20)))]
        paths.append(path)
        now += rng.expovariate(2.0)
        prompt = len(path) * block_tokens + rng.randint(0, block_tokens - 1)
        requests.append(TraceRequest(now, prompt, rng.randint(1, 60), array("q", path)))
    return Trace(block_tokens, requests)


def run(layout, trace, *, rows=2000, host=50_000, costs=COSTS, **settings):
    chosen = Settings(host_memory_bytes=host, **settings)
    limits = ServerLimits(max_num_seqs=16, step_tokens=64)
    return replay(trace, Configuration(layout, rows, chosen, costs, limits))


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["full", "gemma", "llama4", "deepseek-v4-like"])
def test_tokens_add_up_and_the_same_trace_gives_the_same_figures(name, mode):
    """Device, host and computed tokens are the prompts'; every request has a TTFT."""
    trace = conversations(1)
    first, second = (run(LAYOUTS[name], trace, mode=mode) for _ in range(2))
    assert asdict(first) == asdict(second)
    served = trace.requests
    assert len(served) == first.num_requests + first.num_too_long
    assert len(first.ttft_seconds) == first.num_requests
    assert 0 == first.num_too_long
    assert sum(r.num_prompt_tokens for r in served) == first.prompt_tokens
    total = first.device_tokens + first.host_tokens + first.computed_tokens
    assert first.prompt_tokens == total
    assert min(first.ttft_seconds) > 0
    assert first.counters["failed_jobs"] == 0


def test_host_memory_adds_hits_and_shortens_waiting():
    """Much of it against next to none, behind a small device."""
    trace = conversations(2)
    little, much = (run(PLAIN, trace, rows=60, host=h) for h in (2000, 10**6))
    assert little.host_tokens < much.host_tokens
    assert much.busy_seconds < little.busy_seconds
    assert much.ttft_percentile(90) < little.ttft_percentile(90)


def test_lazy_mode_stores_nothing_while_the_device_holds_everything():
    """And what a small device gives away it does store."""
    trace = conversations(3)
    roomy = run(PLAIN, trace, rows=10**5, host=10**6, mode="lazy")
    tight = run(PLAIN, trace, rows=60, host=10**6, mode="lazy")
    assert (0, 0) == (roomy.stored_bytes, roomy.host_tokens)
    assert tight.stored_bytes > 0 < tight.host_tokens
    assert 0 == tight.counters["lost_chunks"]


@pytest.mark.parametrize("policy", ["lru", "adaptive"])
@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["full", "gemma", "deepseek-v4-like"])
def test_what_leaves_both_caches_is_freed_without_a_search_for_cycles(
    name, mode, policy
):
    """So a replay may do without that search and needs no more memory for it."""
    settings = Settings(host_memory_bytes=20_000, mode=mode, eviction_policy=policy)
    limits = ServerLimits(max_num_seqs=16, step_tokens=64)
    configuration = Configuration(LAYOUTS[name], 900, settings, COSTS, limits)
    trace = conversations(5)
    memory = make_memory(trace, configuration, Memory)
    with unfreed() as cycles:
        outcome = play_through(trace, configuration, memory)
    assert not cycles
    assert outcome.evicted_device_chunks > 100 < outcome.counters["evicted_chunks"]
    assert gc.isenabled()


def test_a_request_larger_than_the_device_is_counted_and_left_out():
    """The others are served."""
    trace = conversations(4)
    outcome = run(PLAIN, trace, rows=25)
    assert 0 < outcome.num_too_long < 120
    assert 120 == outcome.num_requests + outcome.num_too_long


@pytest.mark.parametrize("chunk_tokens", [16, 48, 64, 80, 96, 192])
def test_chunks_need_not_fit_the_blocks_of_the_trace(chunk_tokens):
    """With endless memory a prompt resumes at the last chunk in blocks seen before."""
    trace = conversations(5, block_tokens=64)
    layout = layout_of(
        group(0, FULL, chunk_tokens, None, 16),
        hash_tokens=chunk_tokens,
        alignment=chunk_tokens,
    )
    settings = Settings(host_memory_bytes=10**6)
    outcome = replay(trace, Configuration(layout, None, settings))
    unit = max(chunk_tokens, 64) if chunk_tokens != 48 else 96
    seen, expected = set(), 0
    for request in trace.requests:
        num_shared = sum(block in seen for block in request.blocks)
        most = min(num_shared * 64, request.num_prompt_tokens - 1)
        expected += most // unit * unit
        seen.update(request.blocks)
    assert 0 == outcome.counters["evicted_chunks"]
    assert expected == outcome.host_tokens


@pytest.mark.skipif("KVCELLAR_TRACES" not in os.environ, reason="KVCELLAR_TRACES unset")
@pytest.mark.parametrize(
    ("tokens", "percent"),
    [(2**18, 4.3), (2**20, 5.6), (2**22, 18.5), (2**24, 34.1), (2**26, 37.2)],
)
def test_lru_reproduces_the_reference_curve(tokens, percent):
    """Host memory alone, plain full attention, the Mooncake conversation trace.

    The reference counts the unfinished block at a prompt's end as a whole one.
    """
    folder = Path(os.environ["KVCELLAR_TRACES"])
    requests, num_tokens = [], 0
    with gzip.open(folder / "mooncake" / "conversation_trace.jsonl.gz", "rt") as lines:
        for line in lines:
            read = json.loads(line)
            ids = array("q", read["hash_ids"])
            num_tokens += read["input_length"]
            at = read["timestamp"] / 1000
            requests.append(TraceRequest(at, len(ids) * 512, 1, ids))
    settings = Settings(
        host_memory_bytes=tokens, store_decoded=False, eviction_policy="lru"
    )
    one_byte = layout_of(group(0, FULL, 16, None, 16), hash_tokens=16, alignment=16)
    outcome = replay(Trace(512, requests), Configuration(one_byte, None, settings))
    assert abs(percent - 100 * outcome.host_tokens / num_tokens) <= 0.2


@pytest.mark.skipif("KVCELLAR_TRACES" not in os.environ, reason="KVCELLAR_TRACES unset")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("tokens", "percent"), [(2**22, 27.2), (2**23, 70.0)])
def test_lru_reproduces_the_reference_curve_of_long_prompts(tokens, percent):
    """The same for agents' sessions, in blocks of 1,024 instead of 64 tokens."""
    folder = Path(os.environ["KVCELLAR_TRACES"])
    path = folder / "weka" / "cc_traces_v8_local.jsonl.gz"
    trace = open_trace(path, block_tokens=1024)
    settings = Settings(
        host_memory_bytes=tokens, store_decoded=False, eviction_policy="lru"
    )
    one_byte = layout_of(group(0, FULL, 16, None, 16), hash_tokens=16, alignment=16)
    outcome = replay(trace, Configuration(one_byte, None, settings))
    assert percent == pytest.approx(100 * outcome.hit_ratio, abs=0.5)
