"""The real vLLM on CPU with the connector attached; each scenario has its process."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from engine_scenarios import BLOCK_TOKENS, STATE_DTYPE

from kvcellar.demo.tiny import ensure_tiny
from kvcellar.layout.models import model_layout
from kvcellar.plan import make_plan
from kvcellar.plan.options import request_of
from kvcellar.plan.report.json import content_of

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


@functools.cache
def run(scenario, model, mode="eager", *, is_alarming=False):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), scenario, model, mode],
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "VLLM_LOGGING_LEVEL": "INFO"},
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    alarms = [line for line in done.stderr.splitlines() if ALARM.search(line)]
    assert is_alarming == bool(alarms), alarms
    return json.loads(done.stdout) | {"log": done.stderr}


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


def plan_like(model, sizes, device_bytes):
    """What ``kvcellar plan`` says of the scenarios' server, as JSON."""
    options = {
        "model": ensure_tiny(model),
        "host_memory": "256MiB",
        "mode": "eager",
        "block_tokens": BLOCK_TOKENS[model],
        "state_dtype": STATE_DTYPE,
        "device_memory": device_bytes,
        "max_model_len": sizes["max_model_tokens"],
        "step_tokens": sizes["step_tokens"],
        "no_async_scheduling": not sizes["is_async"],
    }
    return content_of(make_plan(request_of(options)))


def assert_says_the_same(planned, sizes, log):
    """Every line of both start-up reports, and the figures behind them."""
    device, host = planned["device"], planned["host"]
    assert sizes["arena_bytes"] == host["arena_bytes_per_rank"]
    assert {name: device[name] for name in ("num_blocks", "num_tokens")} == {
        name: sizes[name] for name in ("num_blocks", "num_tokens")
    }
    assert sizes["max_concurrency"] == device["max_concurrency"]
    said = re.findall(r"kvcellar: (.*)", log)
    reported = [line for line in said if line in host["log_lines"]]
    assert list(host["log_lines"]) == reported
    (tokens,) = re.findall(r"CPU (KV cache size: .*x)", log)
    assert planned["device_log_line"] == tokens


@pytest.mark.parametrize("model", LAST_BOUNDARY)
def test_plan_equals_what_a_started_server_reports(model):
    """Tokens, bytes, chunks, checkpoints and prompts, and the engine's own lines."""
    figures = run("restore", model, "eager")
    sizes = figures["sizes"]
    planned = plan_like(model, sizes, str(device_bytes_of(model, sizes["num_blocks"])))
    assert_says_the_same(planned, sizes, figures["log"])


def test_plan_makes_the_engines_blocks_of_its_memory():
    """1 GiB of device memory is cut into as many blocks, tokens and requests."""
    figures = run("start", "qwen3-next")
    planned = plan_like("qwen3-next", figures["sizes"], "1GiB")
    assert_says_the_same(planned, figures["sizes"], figures["log"])


def device_bytes_of(model, num_blocks):
    """Device memory that holds exactly so many blocks."""
    found = model_layout(ensure_tiny(model), block_tokens=BLOCK_TOKENS[model])
    return num_blocks * found.row_bytes


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
