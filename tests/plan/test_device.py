"""The device's cache in a plan, against what a running engine would hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan_of

from kvcellar.errors import ConfigError
from kvcellar.layout.models import model_layout

GIB = 2**30


def test_plain_attention_by_hand():
    """1 GiB of llama-3.1-8b: 512 blocks of 2 MiB and 16 tokens each."""
    device = plan_of("llama-3.1-8b", device_memory=GIB, max_model_len=4096)
    device = device.figures.device
    assert (2 * 2**20, 512, 8192, 2.0) == (
        device.row_bytes,
        device.num_blocks,
        device.num_tokens,
        device.max_concurrency,
    )
    # One block of the 512 is never handed out; a prompt of 4,096 tokens takes 256.
    assert (256, 1, 2) == (
        device.blocks_per_prompt,
        device.num_prompts,
        device.num_running,
    )
    assert (
        "KV cache size: 8,192 tokens, Maximum concurrency for 4,096 tokens per "
        "request: 2.00x"
    ) == device.log_line


def test_windows_keep_their_tail_and_run_with_more():
    """A finished prompt keeps 64 blocks per window group, a running one also a step."""
    options = {"device_memory": "20GiB", "prompt_tokens": 32768}
    planned = plan_of("gemma-3-27b", **options, step_tokens=2048)
    device = planned.figures.device
    assert 2048 + 6 * 64 == device.blocks_per_prompt
    in_flight = 2 * 2048
    running = 2048 + 6 * (-(-(1024 - 1 + in_flight) // 16) + 1)
    assert device.num_blocks // running == device.num_running


@given(st.sampled_from(["gpt-oss-20b", "gemma-3-270m", "nemotron-h"]), st.data())
def test_the_longest_request_fits_and_one_token_more_does_not(name, data):
    """Whatever the memory, unless the model's own limit comes first."""
    found = model_layout(name)
    memory = found.row_bytes * data.draw(st.integers(32, 4000))
    device = plan_of(name, device_memory=memory, step_tokens=256).figures.device
    longest = device.longest_request_tokens
    assert found.blocks_per_request(longest, 512) <= device.num_blocks
    if longest < found.max_model_tokens:
        assert found.blocks_per_request(longest + 1, 512) > device.num_blocks
    else:
        assert device.max_concurrency >= 1


def test_a_pipelines_thickest_stage_decides():
    """GPUs have as many blocks each, as many as the one with most layers can hold."""
    options = {"device_memory": "8GiB", "max_model_len": 4096}
    planned = plan_of("llama-3.1-8b", pipeline_parallel=3, **options).figures
    rows = [stage.row_bytes for stage in planned.model.stages]
    assert len(set(rows)) == 2
    assert 8 * GIB // max(rows) == planned.device.num_blocks


@pytest.mark.parametrize(
    ("gpu", "tokens"), [("h200", 8192), ("b200", 16384), ("a100", 2048)]
)
def test_steps_are_as_long_as_the_engine_makes_them_on_that_gpu(gpu, tokens):
    """Two steps are in flight at once, one without scheduling ahead."""
    options = {"device_memory": "20GiB", "gpu": gpu}
    ahead = plan_of("gemma-3-12b", **options).figures.device
    behind = plan_of("gemma-3-12b", no_async_scheduling=True, **options).figures.device
    assert (2 * tokens, tokens) == (ahead.in_flight_tokens, behind.in_flight_tokens)


def test_a_device_without_room_for_any_request_is_refused():
    """With the least that would do."""
    with pytest.raises(ConfigError, match="device_memory=5000 holds 0 blocks") as info:
        plan_of("llama-3.1-8b", device_memory=5000)
    assert "give at least 2097152 bytes" in str(info.value)
