"""Load or recompute: times, and the length from which on loading wins."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import names_of, plan_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import ConfigError
from kvcellar.layout.models import model_layout
from kvcellar.plan.timing import bytes_to_resume, prefill_seconds
from kvcellar.replay.costs import CostModel

SPEEDS = {
    "prefill_tokens_per_second": 1000,
    "decode_seconds_per_token": 0.01,
    "load_bytes_per_second": 1e9,
    "store_bytes_per_second": 1e9,
    "step_seconds": 0,
}


def test_plain_attention_by_hand():
    """131,072 bytes per token: 1,000 tokens take 1 s to compute, 992 of them 0.13 s."""
    timing = plan_of("llama-3.1-8b", prompt_tokens=1000, **SPEEDS).figures.timing
    assert (992, 1.0) == (timing.resumed_tokens, timing.recompute_seconds)
    assert 992 * 131072 / 1e9 == pytest.approx(timing.load_seconds)
    assert timing.load_seconds + 0.008 == pytest.approx(timing.resumed_seconds)
    assert (0, 16) == (timing.checkpoint_load_seconds, timing.break_even_tokens)


@given(
    st.sampled_from(["gemma-3-270m", "qwen3-next", "deepseek-v4-flash", "llama-4"]),
    st.floats(1e7, 1e12),
    st.floats(1e2, 1e6),
    st.integers(1, 40),
)
def test_from_the_break_even_on_loading_is_never_slower(name, load, prefill, more):
    """And one chunk before it, the largest checkpoint would not have paid."""
    options = SPEEDS | {"load_bytes_per_second": load}
    options |= {"prefill_tokens_per_second": prefill}
    figures = plan_of(name, prompt_tokens=8192, host_memory="64GiB", **options).figures
    (layout,) = figures.layouts
    rules, timing = HybridRules(layout), figures.timing
    chunk = layout.chunk_tokens
    if timing.break_even_tokens is None:
        assert rules.chunk_bytes / load >= chunk / prefill
        return
    boundary = timing.break_even_tokens + more * chunk
    saved = boundary / prefill
    assert bytes_to_resume(rules, boundary) / load <= saved * (1 + 1e-9)
    before = timing.break_even_tokens - chunk
    largest = rules.largest_checkpoint[0]
    if before:
        held = before // chunk * rules.chunk_bytes + largest
        assert held / load >= before / prefill * (1 - 1e-9)


@given(st.integers(0, 10_000), st.integers(1, 4096))
def test_every_step_has_its_fixed_part(num_tokens, step_tokens):
    """Whole steps and a shorter one; nothing to compute takes no time."""
    costs = CostModel(1000.0, 0.0, 1.0, 1.0, step_seconds=0.5)
    num_steps = -(-num_tokens // step_tokens)
    expected = num_tokens / 1000 + num_steps * 0.5
    assert expected == pytest.approx(prefill_seconds(costs, num_tokens, step_tokens))


def test_stages_load_side_by_side():
    """The stage with the most bytes decides."""
    one = plan_of("llama-3.1-8b", **SPEEDS).figures.timing
    four = plan_of("llama-3.1-8b", pipeline_parallel=4, **SPEEDS).figures.timing
    assert one.load_seconds / 4 == pytest.approx(four.load_seconds)


def test_measured_speeds_win_over_presets(tmp_path):
    """As for the replay: a file of the same names, then single options."""
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps(SPEEDS))
    planned = plan_of("llama-3.1-8b", costs=path, step_seconds=0.25)
    timing = planned.figures.timing
    assert ("file", "option") == (
        timing.sources["load_bytes_per_second"],
        timing.sources["step_seconds"],
    )
    assert (1e9, 0.25) == (
        timing.costs.load_bytes_per_second,
        timing.costs.step_seconds,
    )
    assert not [note for note in planned.notes if "assumed" in note]


def test_an_unknown_model_has_a_plan_without_times(tmp_path):
    """Parameters that a token uses are not in a config.json; asked for, they are."""
    found = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 64,
        "max_position_embeddings": 8192,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(found))
    planned = plan_of(path)
    assert planned.figures.timing is None
    assert any("--active-parameters" in note for note in planned.notes)
    assert plan_of(path, active_parameters="5e6").figures.timing is not None
    with pytest.raises(ConfigError, match="cannot be assumed"):
        plan_of(path, load_bytes_per_second="1e9")


def test_no_time_leaves_times_out():
    """And refuses speeds beside it."""
    assert plan_of("llama-3.1-8b", no_time=True).figures.timing is None
    with pytest.raises(ConfigError, match="--no-time"):
        plan_of("llama-3.1-8b", no_time=True, gpu="h100")


def test_a_link_that_is_too_slow_is_said():
    """Loading that never pays, and loading that pays too late."""
    never = plan_of("llama-3.1-8b", **SPEEDS | {"load_bytes_per_second": 1e8})
    assert "loading-never-pays" in names_of(never)
    late = plan_of(
        "gemma-3-270m",
        prompt_tokens=600,
        **SPEEDS | {"load_bytes_per_second": 1.2e7},
    )
    assert "breaks-even-late" in names_of(late)
    at = late.figures.timing.break_even_tokens
    assert at > 600
    assert f"min_load_tokens to {at}" in late.findings[-1].remedy


def test_resuming_loads_what_the_rules_ask_for():
    """Chunks before the boundary, and the checkpoint at it."""
    rules = HybridRules(model_layout("gemma-3-270m").layout)
    windows = [g for g in rules.layout.groups if g.span_tokens]
    full = sum(g.payload_bytes for g in rules.layout.groups) - sum(
        g.payload_bytes for g in windows
    )
    expected = 64 * full + sum(32 * g.payload_bytes for g in windows)
    assert expected == bytes_to_resume(rules, 1024)
    assert 0 == bytes_to_resume(rules, 0)
