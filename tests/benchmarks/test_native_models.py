"""The replay's models of vLLM's own connectors against the real ones."""

import importlib
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from token_traces import as_trace

from kvcellar.config import Settings
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.server import ServerLimits
from kvcellar.testing.oracle.layouts import build

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NUM_PROMPTS = 60


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules; they import each other as scripts do."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield [importlib.import_module(f"native_{n}") for n in ("rig", "workload")]
    finally:
        sys.path.remove(str(BENCHMARKS))


def prompts(unit, seed):
    """Conversations that grow and branch, in whole units and a token."""
    rng, paths = random.Random(seed), [[]]
    for _ in range(NUM_PROMPTS):
        base = rng.choice(paths)
        if rng.random() < 0.3:
            base = base[: rng.randint(0, len(base) // unit) * unit]
        fresh = rng.randint(1, 4) * unit
        path = [*base[: 6 * unit], *(rng.randrange(4, 400) for _ in range(fresh))]
        paths.append(path)
        yield [*path, 1]


@pytest.mark.parametrize("num_long", [2, 6])
@pytest.mark.parametrize("system", ["simple", "offloading"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b"])
def test_hits_are_those_of_the_real_connector(bench, name, system, num_long):
    """Prompt after prompt on an empty device, with host memory that is too small."""
    rig, _ = bench
    layout = build(
        name,
        extra_config={},
        num_device_blocks=4000,
        max_model_len=2000,
        is_small=False,  # rows of whole memory pages, as real ones are
    )
    ours = layout_from_kv_cache_config(layout.worker_config)
    whole = layout.worker_config.kv_cache_tensors[0].size  # of all layers together
    row_bytes = whole // layout.worker_config.num_blocks
    unit = max(ours.chunk_tokens, 128)
    asked = list(prompts(unit, seed=num_long))
    per_unit = unit // 16 * len(ours.groups)
    host_bytes = row_bytes * per_unit * 10 * num_long
    candidate = {"simple": rig.SIMPLE, "offloading": rig.OFFLOADING}[system]
    real = real_hits(bench, layout, rig.Engine(layout, candidate, host_bytes), asked)
    step_tokens = layout.vllm_config.scheduler_config.max_num_batched_tokens
    configuration = Configuration(
        ours,
        None,
        Settings(host_memory_bytes=host_bytes),
        limits=ServerLimits(step_tokens=step_tokens),
        system=system,
        row_bytes=row_bytes,
    )
    outcome = replay(as_trace(asked, unit), configuration)
    assert real > 0
    if system == "offloading":
        assert real == outcome.host_tokens
    # A pool of blocks may lose a part of a unit only, and then loses all behind it.
    assert real <= outcome.host_tokens <= 1.1 * real


def real_hits(bench, layout, engine, asked):
    """Tokens that the real connector served, one prompt after another."""
    rig, workload = bench
    hashes_of, hash_tokens = rig.hasher_of(layout), layout.hash_block_tokens
    planned = (
        workload.Planned(
            f"r{i}", tuple(tokens), (1,), 0, "", hashes_of(tokens, 0), hash_tokens
        )
        for i, tokens in enumerate(asked)
    )
    return sum(engine.serve(one).tokens for one in planned)
