"""The real vLLM on CPU with the connector attached; each scenario has its process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parents[2] / "support" / "engine_scenarios.py"
NOTHING_LEFT = {
    "jobs": 0,
    "records": 0,
    "pinned nodes": 0,
    "watched": 0,
    "device blocks": 0,
}
# The last one inside a prompt of 1,700 tokens.
LAST_BOUNDARY = {"gemma3": 1696, "llama4": 1664, "llama": 1696, "qwen3-next": 1536}
# Chunks that lazy mode has copied when all 8 prompts were asked, at most: the device
# still holds the last one.
MOST_CHUNKS_AT_FIRST = {"gemma3": 7 * 53, "qwen3-next": 7 * 6}
ALARM = re.compile(r"Traceback|\bERROR\b|\bWARNING\b.*kvcellar: ")


def run(scenario, model, mode="eager", *, is_alarming=False):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), scenario, model, mode],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "VLLM_LOGGING_LEVEL": "INFO"},
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    alarms = [line for line in done.stderr.splitlines() if ALARM.search(line)]
    assert is_alarming == bool(alarms), alarms
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        *((model, "eager") for model in LAST_BOUNDARY),
        ("gemma3", "lazy"),
        ("qwen3-next", "lazy"),
    ],
)
def test_restored_prompts_equal_a_device_hit(model, mode):
    """After eviction every prompt comes back whole, with equal tokens and logprobs."""
    figures = run("restore", model, mode)
    boundaries = [LAST_BOUNDARY[model]] * 8
    assert [0] * 8 == figures["cold cached"]
    assert boundaries == figures["control cached"] == figures["restored cached"]
    assert (0, 0) == (figures["tokens differ"], figures["logprobs differ"])
    assert figures["distinct answers"] > 4
    assert 5 * boundaries[0] <= figures["counters"]["loaded_tokens"]
    needs_checkpoints = model != "llama"
    assert needs_checkpoints == (figures["counters"]["stored_checkpoints"] > 0)
    if mode == "lazy":
        num_chunks = figures["chunks stored before any return"]
        assert 0 < num_chunks <= MOST_CHUNKS_AT_FIRST[model]
    assert NOTHING_LEFT == figures["leftovers"]


@pytest.mark.parametrize(
    ("model", "mode", "num_requests"),
    [("gemma3", "eager", 60), ("gemma3", "lazy", 200), ("qwen3-next", "lazy", 200)],
)
def test_a_busy_engine_ends_every_request_and_leaves_nothing(model, mode, num_requests):
    """8 requests at a time, aborts, a device of three prompts, little host memory.

    What is loaded for a hash is, bit for bit, what was computed for it before.
    """
    figures = run("stress", model, mode)
    assert num_requests == figures["ended"]
    assert all(figures["loaded blocks checked"])  # of each group
    assert 0 == figures["loaded blocks wrong"]
    assert figures["evicted chunks"] > 0
    assert figures["counters"]["loaded_tokens"] > 0
    assert 0 == figures["counters"]["failed_jobs"]
    assert NOTHING_LEFT == figures["leftovers"]


@pytest.fixture(scope="module")
def disturbed():
    """Figures of an engine whose loads fail and whose caches are reset."""
    return run("disturb", "gemma3", is_alarming=True)


def test_a_failed_load_is_recomputed_once(disturbed):
    """The request gets its right answer without a second try; others are served."""
    figures = disturbed["failing loads"]
    assert (1, 0) == (figures["failures"], figures["failed cached"])
    assert figures["failed tokens equal cold"]
    assert LAST_BOUNDARY["gemma3"] == figures["later cached"]
    assert 1 == figures["counters"]["failed_jobs"]
    assert NOTHING_LEFT == figures["leftovers"]


def test_reset_clears_what_it_says(disturbed):
    """A plain reset leaves host memory warm; with the connector nothing is served."""
    figures = disturbed["reset"]
    assert (True, 1696) == (figures["plain"], figures["after plain"])
    assert (True, 0) == (figures["everything"], figures["after everything"])
    assert 1696 == figures["again"]
    assert NOTHING_LEFT == figures["leftovers"]
