"""Token units, groups that hold nothing, and words for sizes."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan_of

from kvcellar.config import parse_bytes
from kvcellar.errors import ConfigError
from kvcellar.layout.groups import AttentionKind, GroupLayout, make_layout
from kvcellar.layout.models import model_layout
from kvcellar.plan import EngineLimits, PlanRequest, ServerShape, Traffic, make_plan
from kvcellar.plan.report.text import text_of
from kvcellar.plan.units import units_of
from kvcellar.plan.words import duration, option_size, rounded_up, size

DEEPSEEK_V41 = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "head_dim": 512,
    "index_head_dim": 128,
    "sliding_window": 128,
    "compress_ratios": [0, 0, 2, 1],
    "kv_source_layer_ids": [2],
    "index_source_layer_ids": [2],
    "max_position_embeddings": 32768,
}


def layout_of(*blocks: int, has_drafter: bool = False):
    """Full attention in blocks of these sizes, which share a unit of 16 tokens."""
    groups = [
        GroupLayout(i, AttentionKind.FULL, block, 100, 100, 1)
        for i, block in enumerate(blocks)
    ]
    return make_layout(
        groups,
        hash_block_tokens=16,
        alignment_tokens=16,
        scheduler_block_tokens=16,
        has_drafter=has_drafter,
    )


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ((32,), "the block of 32 tokens that all groups have"),
        ((16, 64, 64), "full group 1 and full group 2, in blocks of 64 tokens"),
        ((32, 48), "the least common multiple of the groups' blocks of 32, 48 tokens"),
    ],
)
def test_what_sets_the_chunk_is_named(blocks, words):
    """One group, several, or what their blocks have in common."""
    assert words == units_of(layout_of(*blocks)).set_by


def test_a_drafter_costs_a_chunk():
    """Its last entry is only known to be right if the prompt goes on that far."""
    assert 65 == units_of(layout_of(32, has_drafter=True)).shortest_prompt_tokens


def test_scratch_is_in_the_table_and_keeps_nothing(tmp_path):
    """What nobody can find again costs device memory and no host memory."""
    model = model_layout(DEEPSEEK_V41)
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V41))
    planned = plan_of(tmp_path, host_memory="1GiB")
    scratch = [group for group in planned.figures.groups if not group.is_kept]
    assert len(model.groups_all) - len(model.layout.groups) == len(scratch) > 0
    assert {(0, 0)} == {(g.chunk_bytes, g.checkpoint_bytes) for g in scratch}
    assert "nothing: it cannot be found again" in text_of(planned)


def test_the_dead_state_rule_is_the_settings():
    """Off, DeepSeek-V4's checkpoints hold all states that the engine declares."""
    sizes = [
        make_plan(PlanRequest("deepseek-v4-flash", {"dead_state": chosen}))
        .figures.host.stages[0]
        .checkpoint_bytes
        for chosen in (True, False)
    ]
    windows, states = 2 * (22 + 21) * 64 * 584, 21 * (32768 + 8192)
    declared = windows + 2 * states + 16 * 20 * 32768
    assert [windows + states, declared] == sizes


@given(st.integers(1, 2**45))
def test_a_size_in_an_option_is_read_as_the_same_bytes(num_bytes):
    """Exactly; rounding up adds an eighth at most."""
    assert num_bytes == parse_bytes(option_size(num_bytes), "host_memory")
    assert num_bytes <= rounded_up(num_bytes) <= num_bytes * 9 / 8


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: ServerShape(tensor_parallel=0), "tensor_parallel=0"),
        (lambda: EngineLimits(step_tokens=0), "step_tokens=0"),
        (lambda: Traffic(num_concurrent=-1), "concurrency=-1"),
    ],
)
def test_numbers_from_code_are_checked_too(made, words):
    """Not only those that were typed."""
    with pytest.raises(ConfigError, match=words):
        made()


def test_figures_are_read_as_they_are_said():
    """Units that suit, no decimals that say nothing."""
    assert ("64 GiB", "1.50 MiB", "512 B") == tuple(
        map(size, (64 * 2**30, 3 * 2**19, 512))
    )
    times = (2.5, 0.22, 0.00374, 0.0000021, 0.0, 3e-8)
    expected = ["2.5 s", "220 ms", "3.74 ms", "2.1 us", "0 ms", "0.03 us"]
    assert expected == [duration(seconds) for seconds in times]


def test_lazy_without_any_room_is_still_a_plan():
    """A prompt longer than both memories: nothing is promised."""
    planned = plan_of(
        "llama-3.1-8b",
        host_memory="64MiB",
        device_memory="1GiB",
        prompt_tokens=9000,
        mode="lazy",
    )
    assert "holds no whole prompt of 8,992 tokens" in text_of(planned)
    assert dataclasses.replace(planned) == planned


@pytest.mark.parametrize("written", ["64GB", "64GiB", "1kB", "1536", "2TB"])
def test_a_size_that_was_given_comes_back_as_it_was_written(written: str) -> None:
    """Decimal units stay decimal in a suggested command, binary ones binary."""
    assert option_size(parse_bytes(written, "host_memory")) == written
