"""The replay's simulated server against vLLM's real scheduler with the connector.

The same prompts, one after another; what each finds on the device and in host memory.
"""

import random

import pytest

pytest.importorskip("vllm")

from own_layouts import plan
from scripted import Scripted
from token_traces import as_trace

from kvcellar.config import Settings
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.server import ServerLimits
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack, window

STEP_TOKENS = 64
LAYERS = {
    "full": stack("FF", F=full(SMALL, 16)),
    "window": stack("FW", F=full(SMALL, 16), W=window(SMALL, 40, 16)),
    "coarse": stack("FW", F=full(SMALL, 32), W=window(SMALL, 100, 16)),
}


def prompts(num_prompts, chunk_tokens, seed):
    """Conversations that grow and branch, cut at any length."""
    rng, paths = random.Random(seed), [[]]
    for _ in range(num_prompts):
        base = rng.choice(paths)
        if rng.random() < 0.3:
            base = base[: rng.randint(0, len(base))]
        fresh = rng.randint(1, 4 * chunk_tokens)
        path = [*base[:200], *(rng.randrange(4, 400) for _ in range(fresh))]
        paths.append(path)
        yield path


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", [1, 2])
def test_hits_are_those_of_the_real_scheduler(name, mode, seed):
    """Token for token in plain attention; within 2 % with windows."""
    settings = {"host_memory": 200_000, "mode": mode}
    layout = plan(
        LAYERS[name],
        prompt_tokens=200,
        num_device_blocks=90,
        max_num_batched_tokens=STEP_TOKENS,
        max_num_seqs=8,
        extra_config=settings,
    )
    engine = Scripted(layout)
    unit = engine.planner.layout.chunk_tokens
    asked = list(prompts(120, unit, seed))
    answers = [engine.ask(tokens) for tokens in asked]
    host_bytes = engine.planner.slabs.geometry.arena_bytes
    configuration = Configuration(
        engine.planner.layout,
        89,  # without the block that the engine never hands out
        Settings(host_memory_bytes=host_bytes, mode=mode),
        limits=ServerLimits(step_tokens=STEP_TOKENS),
    )
    outcome = replay(as_trace(asked, unit), configuration)
    engine.close()
    local = sum(answer.local_tokens for answer in answers)
    loaded = sum(answer.loaded_tokens for answer in answers)
    assert loaded > 500 < local
    if name == "full":
        assert (local, loaded) == (outcome.device_tokens, outcome.host_tokens)
    # With windows the device's blocks are put together less well; what it lacks, host
    # memory has, so that the sum is the same but for a prompt or two.
    union = outcome.device_tokens + outcome.host_tokens
    assert abs(local + loaded - union) <= 0.02 * union
    assert abs(local - outcome.device_tokens) <= 0.1 * outcome.prompt_tokens
