"""Per-request controls: how they are read, and what the planner makes of them."""

import pytest
from planner_workload import make_engine

from kvcellar.core.controls import NO_CONTROLS, RequestControls, read_controls
from kvcellar.index.checks import check_index

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {}),
        ({"max_load_tokens": 0}, {"max_load_tokens": 0}),
        ({"max_store_tokens": 7}, {"max_store_tokens": 7}),
        ({"max_offload_tokens": 7}, {"max_store_tokens": 7}),
        ({"skip_load": True, "skip_store": False}, {"skip_load": True}),
        ({"keep_seconds": 30}, {"keep_seconds": 30.0}),
        ({"keep_until": NOW + 60}, {"keep_after_arrival_seconds": 60.0}),
        ({"keep_until": NOW - 60}, {}),
        (
            {"keep_until": NOW + 60, "keep_seconds": 90.5},
            {"keep_seconds": 90.5, "keep_after_arrival_seconds": 60.0},
        ),
        ({"priority": -10}, {"priority": -10}),
        ({"tags": ["team-a", "batch"]}, {"tags": ("team-a", "batch")}),
        ({"do_remote_prefill": False, "remote_host": "h", "tp_size": 2}, {}),
    ],
)
def test_what_is_written_right_is_read(params, expected):
    """Every key under its name and its twin's; other connectors' keys pass by."""
    controls, bad = read_controls(params, NOW)
    assert (RequestControls(**expected), []) == (controls, bad)


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("max_load_tokens", -1, "whole number of tokens, 0 or more"),
        ("max_load_tokens", True, "whole number of tokens"),
        ("max_offload_tokens", "100", "whole number of tokens"),
        ("max_store_tokens", None, "whole number of tokens"),
        ("skip_store", "false", "true or false, without quotes"),
        ("skip_load", 1, "true or false"),
        ("keep_seconds", -0.5, "number of seconds"),
        ("keep_seconds", float("nan"), "number of seconds"),
        ("keep_until", float("inf"), "number of seconds"),
        ("keep_until", "tomorrow", "number of seconds"),
        ("priority", 11, "whole number from -10 to 10"),
        ("priority", 1.0, "whole number from -10 to 10"),
        ("tags", "batch", "list of at most 8 names"),
        ("tags", ["a"] * 9, "list of at most 8 names"),
        ("tags", ["a", ""], "names of 1 to 64 characters"),
        ("tags", ["x" * 65], "names of 1 to 64 characters"),
        ("skip_stores", True, "nearest known key is 'skip_store'"),
        ("Skip-Load", True, "nearest known key is 'skip_load'"),
        (7, True, "nearest known key"),
    ],
)
def test_what_cannot_be_read_is_left_out_alone(key, value, advice):
    """The message names key, value and remedy; the other controls count."""
    controls, bad = read_controls({key: value, "priority": 3} | {key: value}, NOW)
    (one,) = bad
    assert str(key) == one.key
    assert f"{key}={value!r}" in one.message
    assert advice in one.message
    expected = NO_CONTROLS if key == "priority" else RequestControls(priority=3)
    assert expected == controls


def run(engine, request_id, tokens, **controls):
    """A request from its start to its end; tokens that were loaded for it."""
    request = engine.start(
        request_id, list(tokens), controls=RequestControls(**controls)
    )
    loaded = request.num_computed
    engine.run_jobs()
    engine.compute(request, len(tokens))
    engine.finish(request)
    engine.run_jobs()
    return loaded


def prompt(engine, num_chunks, first=0):
    """Whole chunks and a token, unlike those of another ``first``."""
    return [first] * (num_chunks * engine.layout.chunk_tokens) + [1]


@pytest.mark.parametrize("name", ["full", "gemma"])
def test_a_request_may_skip_loading_or_load_less(name):
    """Nothing with ``skip_load``; at most ``max_load_tokens``, at a resume point."""
    engine = make_engine(name, max_load_tokens=5 * 10**6)
    chunk = engine.layout.chunk_tokens
    tokens = prompt(engine, 6)
    for length in (2, 4, 6):
        run(engine, f"r{length}", tokens[: length * chunk + 1])
    assert 6 * chunk == run(engine, "all", tokens)
    assert 0 == run(engine, "none", tokens, skip_load=True)
    assert 4 * chunk == run(engine, "some", tokens, max_load_tokens=5 * chunk - 1)
    assert 0 == run(engine, "zero", tokens, max_load_tokens=0)


@pytest.mark.parametrize("name", ["full", "gemma"])
def test_a_request_may_skip_storing_or_store_less(name):
    """Nothing with ``skip_store``; no chunk beyond ``max_store_tokens``."""
    engine = make_engine(name)
    chunk, nodes = engine.layout.chunk_tokens, engine.offloader.index.nodes
    run(engine, "none", prompt(engine, 4), skip_store=True)
    assert 0 == len(nodes)
    run(engine, "some", prompt(engine, 4), max_store_tokens=3 * chunk - 1)
    assert 2 == len(nodes)
    run(engine, "all", prompt(engine, 4))
    assert 4 == len(nodes)


@pytest.mark.parametrize("name", ["full", "gemma", "deepseek-v4-like"])
def test_what_is_kept_returns_whole_until_its_time(name):
    """Kept: every other path goes before it, and it is found as far as before.

    Its own next turn does not take the place of what an exact repeat needs.
    """
    engine = make_engine(name, "tight", lease_share=1.0)
    tokens = prompt(engine, 3)
    run(engine, "kept", tokens, keep_seconds=10**6)
    run(engine, "next turn", [*tokens, *prompt(engine, 2, first=2)])
    for number in range(40):
        run(engine, f"r{number}", prompt(engine, 5, first=3 + number))
    assert engine.offloader.index.counters.evicted_chunks
    assert 3 * engine.layout.chunk_tokens == run(engine, "again", tokens)
    engine._now += 10**6
    for number in range(40, 80):
        run(engine, f"r{number}", prompt(engine, 5, first=3 + number))
    assert 0 == run(engine, "late", tokens)
    assert 0 == engine.offloader.index.leases.used_bytes


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"keep_after_arrival_seconds": 1000.0}, 1000.0),
        ({"keep_after_arrival_seconds": 50.0}, None),  # over before it has ended
        ({"keep_seconds": 10.0}, 110.0),
        ({"keep_after_arrival_seconds": 1000.0, "keep_seconds": 10.0}, 1000.0),
        ({"keep_after_arrival_seconds": 50.0, "keep_seconds": 10.0}, 110.0),
    ],
)
def test_a_moment_counts_from_the_arrival_and_a_time_from_the_end(wishes, expected):
    """A request that takes 100 seconds: the later of the two ends its lease."""
    engine = make_engine("full", lease_share=1.0)
    tokens = prompt(engine, 2)
    arrival = engine._now + 1.0
    request = engine.start("r", tokens, controls=RequestControls(**wishes))
    engine.compute(request, len(tokens))
    engine.run_jobs()
    engine._now = arrival + 99.0  # the next event comes a second later
    engine.finish(request)
    ends = list(engine.offloader.index.leases.ends.values())
    assert ends == ([] if expected is None else [pytest.approx(arrival + expected)])


def test_a_lease_keeps_what_a_request_used_but_did_not_store():
    """``skip_store`` with ``keep_seconds``: the path it was served from stays."""
    engine = make_engine("full", "tight", lease_share=1.0)
    tokens = prompt(engine, 3)
    run(engine, "first", tokens)
    run(engine, "second", tokens, skip_store=True, keep_seconds=10**6)
    for number in range(40):
        run(engine, f"r{number}", prompt(engine, 5, first=3 + number))
    assert 3 * engine.layout.chunk_tokens == run(engine, "again", tokens)


def test_a_path_whose_copy_failed_is_leased_as_far_as_it_is_held():
    """The end of a failed path is in the tree no more, and a lease of it protected
    nodes in the tree for good."""
    engine = make_engine("full", "tight", lease_share=1.0)
    tokens = prompt(engine, 3)
    run(engine, "first", tokens)
    longer = [*tokens[:-1], *prompt(engine, 3, first=9)]
    controls = RequestControls(keep_seconds=10**6)
    request = engine.start("second", longer, controls=controls)
    engine.run_jobs()
    engine.compute(request, len(longer))
    engine.failing = {"store"}
    engine.run_jobs()
    engine.failing = set()
    engine.finish(request)
    index = engine.offloader.index
    check_index(index)
    assert 3 * index.rules.chunk_bytes == index.leases.used_bytes


def test_leases_cannot_fill_host_memory():
    """Beyond their share they are refused and counted; others are still stored."""
    engine = make_engine("full", "tight", lease_share=0.5)
    for number in range(60):
        run(engine, f"r{number}", prompt(engine, 3, first=number), keep_seconds=10**6)
    index = engine.offloader.index
    assert index.leases.num_refused
    assert index.leases.used_bytes <= engine.geometry.arena_bytes // 2
    last = prompt(engine, 3, first=59)
    assert 3 * engine.layout.chunk_tokens == run(engine, "again", last)


@pytest.mark.parametrize("policy", ["lru", "lru-2", "lrfu", "s3-fifo", "adaptive"])
def test_low_priority_makes_room_for_high(policy):
    """Under every policy batch work goes first, however recent it is."""
    engine = make_engine("full", "tight", eviction_policy=policy)
    precious = prompt(engine, 2)
    run(engine, "precious", precious, priority=1)
    for number in range(60):
        run(engine, f"r{number}", prompt(engine, 5, first=2 + number), priority=-1)
    assert 2 * engine.layout.chunk_tokens == run(engine, "again", precious)


@pytest.mark.parametrize("name", ["full", "gemma", "deepseek-v4-like"])
def test_a_tenant_that_floods_leaves_the_others_their_prompts(name):
    """Sixty prompts of one tenant: another's, older than all, is found whole."""
    engine = make_engine(name, "tight", tenant_share=0.5)
    tokens = prompt(engine, 2)
    run(engine, "quiet", tokens)
    for number in range(60):
        flood = prompt(engine, 2, first=2 + number)
        request = engine.start(f"r{number}", flood, tenant="loud")
        engine.compute(request, len(flood))
        engine.finish(request)
        engine.run_jobs()
        check_index(engine.offloader.index)
    assert engine.offloader.index.counters.evicted_chunks
    assert 2 * engine.layout.chunk_tokens == run(engine, "again", tokens)
