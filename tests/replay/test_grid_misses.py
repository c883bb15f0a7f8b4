"""Why tokens are computed: reasons add up and mean what they say."""

import dataclasses

import pytest
from layouts import FULL, LAYOUTS, group, layout_of
from replay_grids import conversations

from kvcellar.config import Settings
from kvcellar.replay.coarse import unit_tokens
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.costs import NO_TIME, CostModel
from kvcellar.replay.grid_cell import no_host_settings, play
from kvcellar.replay.grid_misses import AVOIDABLE, Reason
from kvcellar.replay.server import ServerLimits

PLAIN = layout_of(group(0, FULL, 16, None, 16), hash_tokens=16, alignment=16)
COSTS = CostModel(1000.0, 0.02, 1e6, 1e6, 0.01)
LIMITS = ServerLimits(max_num_seqs=16, step_tokens=64)


def played(layout, trace, *, rows=2000, host=50_000, costs=COSTS, **settings):
    chosen = Settings(host_memory_bytes=host, **settings)
    return play(
        trace, Configuration(layout, rows, chosen, costs, LIMITS), on_request=list
    )


def seen_before(trace, unit):
    """Prompt tokens that an earlier prompt had, by comparing with all of them."""
    known, num_seen = set(), 0
    for request in trace.requests:
        stride = unit // trace.block_tokens
        path = request.blocks[stride - 1 :: stride]
        limit = (request.num_prompt_tokens - 1) // unit
        num_seen += unit * sum(block in known for block in path[:limit])
        known.update(path)
    return num_seen


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["full", "gemma", "llama4", "deepseek-v4-like"])
def test_reasons_add_up_to_what_was_computed(name, mode):
    """And watching changes nothing: the outcome is that of a plain replay."""
    trace = conversations(120)
    one = played(LAYOUTS[name], trace, mode=mode)
    assert one.outcome.computed_tokens == sum(one.missed_tokens.values())
    assert min(one.missed_tokens.values()) >= 0
    settings = Settings(host_memory_bytes=50_000, mode=mode)
    plain = replay(trace, Configuration(LAYOUTS[name], 2000, settings, COSTS, LIMITS))
    saved = one.outcome.saved_seconds
    assert dataclasses.replace(plain, saved_seconds=saved) == one.outcome


@pytest.mark.parametrize("system", ["simple", "offloading"])
@pytest.mark.parametrize("name", ["full", "gemma"])
def test_reasons_add_up_for_natives_too(name, system):
    """Though they may hold the end of a prompt without its beginning."""
    trace = conversations(120)
    settings = Settings(host_memory_bytes=150_000)
    configuration = Configuration(
        LAYOUTS[name], 500, settings, COSTS, LIMITS, system=system, row_bytes=100
    )
    one = play(trace, configuration, on_request=list)
    assert one.outcome.computed_tokens == sum(one.missed_tokens.values())
    assert min(one.missed_tokens.values()) >= 0
    assert one.missed_tokens[Reason.EVICTED] > 0 < one.outcome.host_tokens
    plain = replay(trace, configuration)
    saved = one.outcome.saved_seconds
    assert dataclasses.replace(plain, saved_seconds=saved) == one.outcome
    found = one.outcome.device_tokens + one.outcome.host_tokens
    avoidable = sum(one.missed_tokens[reason] for reason in AVOIDABLE)
    unit = unit_tokens(LAYOUTS[name], trace.block_tokens)
    assert seen_before(trace, unit) == found + avoidable


@pytest.mark.parametrize("name", ["full", "gemma"])
def test_what_was_never_seen_is_counted_by_brute_force(name):
    """Found and avoidable tokens together are what earlier prompts had."""
    trace = conversations(120)
    one = played(LAYOUTS[name], trace, rows=800)
    found = one.outcome.device_tokens + one.outcome.host_tokens
    avoidable = sum(one.missed_tokens[reason] for reason in AVOIDABLE)
    unit = unit_tokens(LAYOUTS[name], trace.block_tokens)
    assert 0 == one.outcome.num_too_long
    assert seen_before(trace, unit) == found + avoidable


def test_with_room_for_all_and_no_time_only_new_tokens_are_computed():
    """Nothing is evicted, under way or short of a checkpoint."""
    one = played(PLAIN, conversations(120), host=10**8, costs=NO_TIME)
    assert one.outcome.host_tokens + one.outcome.device_tokens > 0
    assert 0 == sum(one.missed_tokens[reason] for reason in AVOIDABLE)
    assert one.missed_tokens[Reason.PARTIAL] > 0 < one.missed_tokens[Reason.NEVER_SEEN]


def test_a_small_host_memory_evicts_and_a_slow_one_is_still_storing():
    """Each reason shows where it is provoked."""
    trace = conversations(120)
    small = played(PLAIN, trace, rows=None, host=2000, costs=NO_TIME)
    assert small.missed_tokens[Reason.EVICTED] > 0
    slow = dataclasses.replace(COSTS, store_bytes_per_second=100.0)
    late = played(PLAIN, trace, rows=None, host=10**8, costs=slow)
    assert late.missed_tokens[Reason.STORING] > 0
    windows = played(LAYOUTS["gemma"], trace, rows=800, spaced_checkpoint_share=0.0)
    assert windows.missed_tokens[Reason.NO_CHECKPOINT] > 0


def test_without_a_device_cache_two_at_once_compute_the_same():
    """The later one finds its prefix neither computed nor stored."""
    trace = conversations(60)
    crowd = [dataclasses.replace(r, arrival_seconds=0.0) for r in trace.requests]
    one = played(
        PLAIN, dataclasses.replace(trace, requests=crowd), rows=None, host=10**8
    )
    waiting = one.missed_tokens[Reason.IN_PROGRESS] + one.missed_tokens[Reason.STORING]
    assert waiting > 0


@pytest.mark.parametrize("name", ["full", "gemma", "deepseek-v4-like"])
def test_without_host_memory_nothing_is_stored(name):
    """And the device finds what it finds by itself."""
    trace = conversations(120)
    settings = no_host_settings(LAYOUTS[name], trace.block_tokens)
    configuration = Configuration(LAYOUTS[name], 2000, settings, COSTS, LIMITS)
    outcome = play(trace, configuration, on_request=list).outcome
    assert (0, 0, 0) == (
        outcome.stored_bytes,
        outcome.loaded_bytes,
        outcome.host_tokens,
    )
    assert 0 == outcome.counters["stored_checkpoints"]
    assert outcome.device_tokens > 0
