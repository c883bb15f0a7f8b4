"""The offline bound is never below what is possible, and meets it where it says so."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import FULL, LAYOUTS, STATE, WINDOW, group, layout_of
from offline_optimum import optimum_tokens
from replay_grids import MIB, conversations, report_of, trace_file
from token_traces import as_trace

from kvcellar.config import ADMISSIONS, EVICTION_POLICIES, PLACEMENTS, Settings
from kvcellar.layout.models import model_layout
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.grid import GridAxes
from kvcellar.replay.offline.bound import OfflineBound
from kvcellar.replay.presets_choice import CostChoice

PLAIN = layout_of(group(0, FULL, 4, None, 10), hash_tokens=4, alignment=4)
SMALL = {
    "window": layout_of(
        group(0, FULL, 4, None, 10),
        group(1, WINDOW, 4, 7, 13),
        hash_tokens=4,
        alignment=4,
    ),
    "two windows": layout_of(
        group(0, FULL, 4, None, 10),
        group(1, WINDOW, 4, 13, 4),
        group(2, WINDOW, 2, 4, 5),
        hash_tokens=2,
        alignment=4,
    ),
    "long chunks": layout_of(
        group(0, FULL, 8, None, 20),
        group(1, WINDOW, 4, 11, 9),
        hash_tokens=4,
        alignment=8,
    ),
    "states only": layout_of(group(0, STATE, 4, None, 25), hash_tokens=4, alignment=4),
    "state": layout_of(
        group(0, FULL, 4, None, 10),
        group(1, STATE, 4, None, 25),
        hash_tokens=4,
        alignment=4,
    ),
}

# Prompts as blocks, few kinds of them: most share a beginning with others.
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(0, 3)),
    min_size=2,
    max_size=6,
)


def trace_of(prompts, block_tokens=4):
    asked = [
        [symbol for symbol in symbols for _ in range(block_tokens)] + [9] * more
        for symbols, more in prompts
    ]
    return as_trace(asked, block_tokens)


def bound_tokens(trace, layout, host_bytes, rows=None):
    """The bound in tokens, unrounded."""
    configuration = Configuration(layout, rows, Settings())
    total = sum(request.num_prompt_tokens for request in trace.requests)
    return OfflineBound(trace, configuration).hit_ratio(host_bytes) * total


@given(PROMPTS, st.integers(0, 80))
def test_where_chunks_suffice_it_is_exactly_the_best(prompts, num_bytes):
    """Neither more nor less than by trying everything."""
    trace = trace_of(prompts)
    best = optimum_tokens(trace, PLAIN, num_bytes)
    assert bound_tokens(trace, PLAIN, num_bytes) == pytest.approx(best)


@settings(max_examples=60)
@given(PROMPTS, st.integers(0, 200), st.sampled_from(sorted(SMALL)))
def test_with_checkpoints_it_is_never_below_the_best(prompts, num_bytes, name):
    """Windows, two of them, long chunks, states, states alone; all memory sizes."""
    trace = trace_of(prompts)
    best = optimum_tokens(trace, SMALL[name], num_bytes)
    assert bound_tokens(trace, SMALL[name], num_bytes) >= best - 1e-6


@settings(max_examples=60)
@given(PROMPTS, st.integers(0, 200))
def test_blocks_shorter_than_a_chunk_are_told_apart(prompts, num_bytes):
    """A window may hold a block that somebody left who left inside the chunk."""
    trace = trace_of([(symbols * 2, more) for symbols, more in prompts])
    best = optimum_tokens(trace, SMALL["long chunks"], num_bytes)
    assert bound_tokens(trace, SMALL["long chunks"], num_bytes) >= best - 1e-6


def test_blocks_left_by_somebody_who_left_inside_a_chunk_are_not_charged():
    """The fourth prompt leaves two of the three blocks that the last one reads."""
    layout = layout_of(
        group(0, FULL, 16, None, 20),
        group(1, WINDOW, 4, 13, 9),
        hash_tokens=4,
        alignment=16,
    )
    first, other, half = [0] * 4, [1] * 4, [0, 0, 0, 1]
    trace = trace_of([(p, 1) for p in (first, other, other, half, first)])
    num_bytes = (20 + 9) + (20 + 3 * 9)  # of the first prompt, and all of the other
    assert 2 * 16 == optimum_tokens(trace, layout, num_bytes)
    assert 2 * 16 == pytest.approx(bound_tokens(trace, layout, num_bytes))


@settings(max_examples=60)
@given(PROMPTS, st.integers(0, 200), st.sampled_from(["long chunks", "states only"]))
def test_chunks_may_end_inside_a_block_of_the_trace(prompts, num_bytes, name):
    """Blocks of 6 tokens, chunks of 8: shared by who shares the whole block."""
    trace, layout = trace_of(prompts, 6), SMALL[name]
    best = optimum_tokens(trace, layout, num_bytes)
    assert bound_tokens(trace, layout, num_bytes) >= best - 1e-6


def test_checkpoints_have_to_be_paid_for():
    """Two prompts in turn, room for the chunks of both but for one checkpoint."""
    layout = layout_of(
        group(0, FULL, 4, None, 10),
        group(1, STATE, 4, None, 100),
        hash_tokens=4,
        alignment=4,
    )
    trace = trace_of([([0, 0], 1), ([1, 1], 1)] * 10)
    best = optimum_tokens(trace_of([([0, 0], 1), ([1, 1], 1)] * 4), layout, 120)
    assert 3 * 8 == best  # one of the two, each time it comes back
    assert 9 * 8 <= bound_tokens(trace, layout, 120) < 10 * 8
    assert 18 * 8 == bound_tokens(trace, layout, 240)


def test_device_and_host_are_one_memory():
    """In chunks that fit into each; a device row holds what it holds."""
    trace = trace_of([([0] * 4, 1), ([1] * 4, 1), ([0] * 4, 1), ([1] * 4, 1)])
    found = [
        bound_tokens(trace, PLAIN, host_bytes, rows)
        for host_bytes, rows in ((0, 5), (30, 5), (39, 5), (0, None), (80, None))
    ]
    assert [20, 32, 32, 0, 32] == pytest.approx(found)


def test_requests_that_do_not_fit_count_for_nothing():
    """They are not served, so they find nothing and leave nothing."""
    trace = trace_of([([0] * 8, 1), ([1], 1), ([0] * 8, 1), ([1], 1)])
    assert pytest.approx(4 / 10) == OfflineBound(
        trace, Configuration(PLAIN, 4, Settings())
    ).hit_ratio(0)
    nothing = OfflineBound(
        trace_of([([0] * 8, 1)]), Configuration(PLAIN, 4, Settings())
    )
    assert 0.0 == nothing.hit_ratio(10**9)


CHOICES = st.fixed_dictionaries(
    {
        "eviction_policy": st.sampled_from(EVICTION_POLICIES),
        "placement": st.sampled_from(PLACEMENTS),
        "admission": st.sampled_from(ADMISSIONS),
        "mode": st.sampled_from(["eager", "lazy"]),
        "host_memory_bytes": st.sampled_from([20_000, 60_000, 200_000]),
    }
)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["full", "gemma", "llama4", "deepseek-v4-like"]),
    choices=CHOICES,
    rows=st.sampled_from([150, 300, 900]),
)
def test_no_replay_beats_it(seed, name, choices, rows):
    """Whatever the layout, the sizes and the rules, one request after another."""
    trace = conversations(60, seed=seed, block_tokens=32)
    configuration = Configuration(LAYOUTS[name], rows, Settings(**choices))
    bound = OfflineBound(trace, configuration).hit_ratio(choices["host_memory_bytes"])
    assert replay(trace, configuration).hit_ratio <= bound + 1e-9


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "gemma-3-270m", "qwen3-next"])
def test_more_memory_never_lowers_it(name):
    """From none to enough, where it is all that an earlier request had."""
    model = model_layout(name)
    trace = conversations(150, block_tokens=512)
    configuration = Configuration(model.layout, None, Settings())
    bound = OfflineBound(trace, configuration)
    ratios = [bound.hit_ratio(size * 64 * MIB) for size in (0, 1, 4, 16, 64, 1000)]
    assert all(less <= more + 0.01 for less, more in itertools.pairwise(ratios))
    assert 0.0 == ratios[0] < ratios[-1] == bound.hit_ratio(2**50)


def test_every_row_of_a_report_has_its_bound(tmp_path):
    """The same for all that share sizes; below the ceiling, above what was found."""
    report = report_of(
        trace_file(tmp_path),
        axes=GridAxes(
            (0, 40 * MIB), (0, 20 * MIB), ("kvcellar", "simple"), ("lru", "lru-2")
        ),
        costs=CostChoice(is_timeless=True),
    )
    by_sizes = {}
    for row in report.rows:
        sizes = row["device_memory_bytes"], row["host_memory_bytes"]
        by_sizes.setdefault(sizes, set()).add(row["offline_hit_ratio"])
        assert row["hit_ratio"] <= row["offline_hit_ratio"] <= row["ceiling_hit_ratio"]
    assert {1} == {len(bounds) for bounds in by_sizes.values()}
    assert {0.0} == by_sizes[0, 0]
    assert by_sizes[0, 20 * MIB] != by_sizes[40 * MIB, 20 * MIB]
