"""The planner under random workloads: nothing wrong is ever loaded."""

import random

import pytest
from ghost_entries import remembered
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import LAYOUTS
from planner_workload import MEMORY, Workload, assert_nothing_leaks, make_engine

from kvcellar.core.checks import check_ledger
from kvcellar.index.checks import check_index
from kvcellar.index.policies.reuse import DEPTH_BANDS, NUM_AGES, USE_BANDS
from kvcellar.reasons import MissReason


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_loaded_block_holds_its_prefix(name, memory):
    """Whatever the order of events, loads bring the right bytes and nothing leaks."""
    for seed in range(12):
        engine = make_engine(name, memory)
        workload = Workload(engine, random.Random(seed))
        for _ in range(150):
            workload.step()
            check_index(engine.offloader.index)
            check_ledger(engine.offloader.ledger)
        assert_nothing_leaks(engine)


@pytest.mark.parametrize("share", [0.2, 0.9])
@pytest.mark.parametrize("name", LAYOUTS)
def test_controls_never_make_a_wrong_load_or_a_leak(name, share):
    """With wishes of every kind, and tenants, leases and tenants keep their shares."""
    for seed in range(6):
        engine = make_engine(name, "tight", lease_share=share, tenant_share=share)
        workload = Workload(engine, random.Random(seed), has_controls=True)
        for _ in range(150):
            workload.step()
            check_index(engine.offloader.index)
        assert_nothing_leaks(engine)


@pytest.mark.parametrize("name", LAYOUTS)
def test_prompts_that_are_cut_off_never_make_a_wrong_load_or_a_leak(name):
    """LHD, to which more uses are worth more, and longer ones ago. Each chunk that has
    gone is remembered once, and none that is there."""
    outranked = set()
    for seed in range(6):
        engine = make_engine(name, "tight", eviction_policy="lhd")
        index = engine.offloader.index
        index.ghosts.sample = 1  # prompts are short here
        index.order.live._times.density = [
            [number // DEPTH_BANDS + 0.5 * age for age in range(NUM_AGES)]
            for number in range(USE_BANDS * DEPTH_BANDS)
        ]
        workload = Workload(engine, random.Random(seed), has_controls=True)
        for _ in range(150):
            workload.step()
            check_index(index)
            check_ledger(engine.offloader.ledger)
            assert remembered(index.ghosts).keys().isdisjoint(index.nodes)
            outranked |= {
                (seed, record.request_id)
                for record in engine.offloader.records.values()
                if record.not_admitted is MissReason.OUTRANKED
            }
        assert_nothing_leaks(engine)
    assert outranked


@pytest.mark.parametrize("failing", ["store", "load", "move"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_failed_copies_are_never_served(name, failing):
    """A failed store, load or move ends as a miss; later jobs are served right."""
    for seed in range(6):
        rng = random.Random(seed)
        engine = make_engine(name, "tight")
        workload = Workload(engine, rng)
        for _ in range(120):
            engine.failing = {failing} if rng.random() < 0.3 else set()
            workload.step()
            check_index(engine.offloader.index)
        engine.failing = set()
        assert_nothing_leaks(engine)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_is_stored_can_be_hit(name, data):
    """With room for all, a prompt comes back up to its last boundary, and a longer one
    with it as prefix comes back as far."""
    engine = make_engine(name)
    chunk = engine.layout.chunk_tokens
    tokens = data.draw(
        st.lists(st.integers(0, 3), min_size=1, max_size=5 * chunk), label="tokens"
    )
    request = engine.start("first", list(tokens))
    while request.num_computed < len(tokens):
        engine.compute(request, data.draw(st.integers(1, 3 * chunk), label="step"))
    engine.finish(request)
    engine.run_jobs()
    again = engine.start("again", list(tokens))
    assert (len(tokens) - 1) // chunk * chunk == again.num_computed
    engine.run_jobs()
    longer = engine.start("longer", [*tokens, 9])
    assert len(tokens) // chunk * chunk == longer.num_computed
    engine.run_jobs()
    assert_nothing_leaks(engine)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_third_of_a_common_prefix_hits_the_junction(name):
    """Where a second prompt leaves a known path a checkpoint is kept for the third."""
    engine = make_engine(name)
    chunk = engine.layout.chunk_tokens
    common = [1] * (3 * chunk + 1)
    for number, expected in enumerate((None, None, 3 * chunk)):
        request = engine.start(f"r{number}", [*common, *[number + 2] * (2 * chunk)])
        if expected is not None:
            assert expected == request.num_computed
        engine.run_jobs()
        engine.compute(request, 100 * chunk)
        engine.finish(request)
        engine.run_jobs()
