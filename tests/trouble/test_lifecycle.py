"""Rows about a request's or server's edges: reset, cancel, wait, late ranks."""

import pytest

pytest.importorskip("vllm")

from scripted import is_waiting_for_load, prompt

from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack, window

FULL_16 = stack("FF", F=full(SMALL, 16))
FULL_AND_WINDOW = stack("FW", F=full(SMALL, 16), W=window(SMALL, 48, 16))


def test_vllm_57727_a_plain_reset_leaves_host_memory(engine):
    """Only the device is cleared: the prompt comes back from host memory."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(65)
    run.ask(tokens)
    run.drop_device()
    answer = run.ask(tokens)
    assert (0, 64) == (answer.local_tokens, answer.loaded_tokens)


def test_vllm_57727_a_reset_of_everything_leaves_nothing(engine):
    """Neither device nor host answers afterwards."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(65)
    run.ask(tokens)
    assert run.reset_all()
    assert 0 == run.ask(tokens).hit_tokens


def test_vllm_57727_a_reset_during_a_store_is_not_done_yet(engine):
    """It answers False, succeeds later, and what was in flight publishes nothing."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(65)
    run.stall_copies()
    run.end(run.start(tokens))
    assert not run.reset_all()
    run.release_copies()
    run.settle()
    assert {} == run.index.nodes
    assert run.reset_all()
    assert 0 == run.ask(tokens).hit_tokens


def test_vllm_42695_keys_of_old_weights_are_never_matched(engine):
    """After the weights changed the same prompt is computed, stored, found as new."""
    run = engine(FULL_AND_WINDOW, prompt_tokens=200)
    tokens = prompt(129)
    run.ask(tokens)
    assert run.reset_all()  # from here on other bytes are right
    assert 0 == run.ask(tokens).hit_tokens
    run.drop_device()
    assert 128 == run.ask(tokens).loaded_tokens


def test_vllm_49022_no_load_follows_a_request_that_has_ended(engine):
    """A look-up that promises, then the end in the same step: no load, no pin."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(129)
    run.ask(tokens)
    run.drop_device()
    gone = run.start(tokens)
    assert (128, True) == run.side.look_up(gone.request, 0)
    run.cancel(gone)
    run.settle()
    assert {0: 0} == run.num_copied("load")
    assert not [node for node in run.index.nodes.values() if node.pins]


def test_vllm_49022_a_load_in_flight_may_outlive_its_request(engine):
    """Cancelled while it loads: the copy ends, blocks are free, others are served."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(129)
    run.ask(tokens)
    run.drop_device()
    run.stall_copies()
    gone = run.start(tokens)
    run.step(3)
    assert is_waiting_for_load(gone)
    run.cancel(gone)
    run.step(3)
    run.release_copies()
    run.settle()
    assert 128 == run.ask(tokens).hit_tokens


def test_vllm_49829_nobody_waits_for_a_store_that_hangs(engine):
    """Chunk 3 is never written and its owner has gone: 3 chunks hit, 1 is computed."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(65)
    run.ask(tokens[:49])
    run.stall_copies()
    owner = run.start(tokens)
    run.end(owner)
    run.forget_on_device()
    other = run.start(tokens, new_tokens=2)
    run.step()
    assert (48, 1) == (other.loaded_tokens, other.num_look_ups)
    run.fail_next_copy()  # the owner's store, the oldest, is given up
    run.release_copies()
    run.settle()
    assert (67, 1) == (len(other.tokens), run.planner.counters.failed_jobs)
    run.drop_device()
    assert 64 == run.ask(tokens).loaded_tokens


def test_vllm_57841_everybody_ends_although_a_large_request_is_ahead(engine):
    """270 blocks: one needs 100, one holds 250 loaded ones, one needs 10: all end."""
    run = engine(
        FULL_16,
        prompt_tokens=4100,
        max_model_len=4300,
        num_device_blocks=271,
        max_num_batched_tokens=4096,
    )
    tokens = prompt(4075)
    run.ask(tokens[:4001])
    run.drop_device()
    run.stall_copies()
    loaded = run.start(tokens)
    run.step(3)
    assert is_waiting_for_load(loaded)
    assert (4000, 20) == (loaded.loaded_tokens, run.pool.get_num_free_blocks())
    large, small = run.start(prompt(1600, 1)), run.start(prompt(150, 2))
    run.step(5)
    run.release_copies()
    run.step(12)
    run.settle()
    assert [4076, 1601, 151] == [len(a.tokens) for a in (loaded, large, small)]


def test_vllm_45387_a_finished_load_runs_although_a_larger_one_is_ahead(engine):
    """2048 blocks, a load of 1249 done, 1600 wanted by another: both end."""
    run = engine(
        FULL_16,
        prompt_tokens=20_000,
        max_model_len=26_000,
        num_device_blocks=2049,
        max_num_batched_tokens=8192,
        extra={"host_memory": "256MiB"},
    )
    tokens = prompt(1249 * 16 + 1)
    run.ask(tokens)
    run.drop_device()
    run.stall_copies()
    loaded = run.start(tokens)
    run.step(3)
    assert is_waiting_for_load(loaded)
    large = run.start(prompt(25_600, 1))
    run.step(5)
    run.release_copies()
    run.end(loaded)
    run.settle()
    assert 25_601 == len(large.tokens)


def test_sglang_26921_a_store_counts_when_the_slowest_rank_has_it(engine):
    """Two ranks, the second ten steps late: nothing is served before both have it."""
    run = engine(FULL_16, prompt_tokens=200, num_ranks=2)
    late_rank = run.all_transfers[1]
    late_rank.slowness = 1.0
    tokens = prompt(65)
    run.end(run.start(tokens))
    run.step(10)
    assert 0 == run.transfers.num_in_flight < late_rank.num_in_flight
    early = run.start(tokens)
    assert (0, False) == run.side.look_up(early.request, 0)
    run.cancel(early)
    late_rank.slowness = 0.0
    run.step(2)
    late = run.start(tokens)
    assert (64, True) == run.side.look_up(late.request, 0)
    run.cancel(late)
    run.settle()
