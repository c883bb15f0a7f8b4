"""Rows about eviction: what may go, in which order, and what must not."""

import pytest
from layouts import FULL, group, layout_of

from kvcellar.config import Settings
from kvcellar.core import events
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine

LAYOUT = layout_of(group(0, FULL, 4), hash_tokens=4, alignment=4)


def fake(num_chunks):
    """An engine whose host memory holds exactly ``num_chunks`` chunks."""
    run = FakeEngine(LAYOUT, plan_geometry(LAYOUT, num_chunks * 64), Settings())
    geometry = run.offloader.slabs.geometry
    assert num_chunks == geometry.num_slabs * geometry.classes[0].cells_per_slab
    return run


def tokens_of(seed, num_chunks):
    """Whole chunks and one token more."""
    return [seed * 1000 + i for i in range(4 * num_chunks + 1)]


def play(run, name, tokens):
    """Ask, load, compute the rest, store, end; the tokens that were found."""
    request = run.start(name, list(tokens))
    found = request.num_computed
    run.run_jobs()
    run.compute(request, len(tokens))
    run.run_jobs()
    run.finish(request)
    return found


def test_llm_d_inference_sim_704_the_victim_is_the_end_of_the_chain():
    """Three chunks fit; one new one costs the third, in 200 of 200 runs."""
    for seed in range(1, 201):
        run = fake(3)
        play(run, "first", tokens_of(seed, 3))
        play(run, "other", tokens_of(0, 1))
        assert 8 == run.look_up(run.start("again", tokens_of(seed, 3)))


def test_vllm_45405_no_chunk_stays_without_its_head():
    """Eight chunks of room, two sessions of six in turn: only whole beginnings stay."""
    run = fake(8)
    for turn in range(20):
        session = turn % 2
        play(run, f"r{turn}", tokens_of(session, 6))
        known = run.offloader.index.nodes
        for request_tokens in (tokens_of(0, 6), tokens_of(1, 6)):
            probe = run.start("probe", request_tokens, accept=False)
            is_held = [key in known for key in probe.hashes]
            run.finish(probe)
            assert sorted(is_held, reverse=True) == is_held
    assert run.offloader.index.counters.evicted_chunks > 8


def test_vllm_45405_touches_while_decoding_do_not_outweigh_a_later_use():
    """A long answer is used many times but long ago: it goes before a newer prompt."""
    run = fake(8)
    old = run.start("old", tokens_of(0, 2))
    run.compute(old, 9)
    for token in range(8):
        run.decode(old, 900 + token)
    run.run_jobs()
    run.finish(old)
    play(run, "new", tokens_of(1, 4))
    play(run, "third", tokens_of(2, 4))
    assert 16 == run.look_up(run.start("new again", tokens_of(1, 4)))


def test_vllm_39702_a_promised_hit_cannot_be_evicted():
    """1004 chunks promised, then 18 wanted by others: the whole hit still loads."""
    run = fake(1008)
    play(run, "first", tokens_of(0, 1004))
    waiting = run.start("waiting", tokens_of(0, 1004), accept=False)
    assert 4 * 1004 == run.look_up(waiting)
    play(run, "other", tokens_of(1, 18))
    run._allocate_for_load(waiting, 4 * 1004)
    run._handle(events.Allocated("waiting", 4 * 1004, waiting))
    waiting.num_computed, waiting.is_loading = 4 * 1004, True
    run.run_jobs()  # raises on a wrong byte or a refused load
    assert 4 * 1004 == run.loaded_tokens


def test_vllm_39702_a_cancelled_hit_is_let_go():
    """The request goes between look-up and load: its chunks may be evicted again."""
    run = fake(1008)
    play(run, "first", tokens_of(0, 1004))
    waiting = run.start("waiting", tokens_of(0, 1004), accept=False)
    assert 4 * 1004 == run.look_up(waiting)
    run.finish(waiting)
    play(run, "other", tokens_of(1, 500))
    assert 2000 == run.look_up(run.start("again", tokens_of(1, 500)))
    assert 1004 + 500 - 1008 == run.offloader.index.counters.evicted_chunks


@pytest.mark.parametrize("is_late", [False, True])
def test_vllm_48532_blocks_released_late_keep_the_engines_order(engine, is_late):
    """Groups [a0, a1] and [b0, b1]: the free queue ends with a1, a0, b1, b0."""
    pytest.importorskip("vllm")
    from scripted import prompt

    from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack, window

    layers = stack("FW", F=full(SMALL, 16), W=window(SMALL, 48, 16))
    extra = {} if is_late else {"max_store_tokens": 0}
    run = engine(layers, prompt_tokens=200, extra=extra, dense=True)
    run.stall_copies()
    request = run.start(prompt(32))
    run.step()
    (a0, a1), (b0, b1) = run.runner.rows[request.request_id].tables
    run.end(request)
    free = run.pool.free_block_queue.get_all_free_blocks
    assert [a1, a0, b1, b0] == [block.block_id for block in free()[-4:]]
    run.release_copies()
    run.settle()
    assert [a1, a0, b1, b0] == [block.block_id for block in free()[-4:]]


@pytest.mark.parametrize("is_stalled", [False, True])
def test_vllm_48532_stores_of_several_steps_keep_the_engines_order(engine, is_stalled):
    """A prompt of three steps and three stores: its blocks are freed tail first."""
    pytest.importorskip("vllm")
    from scripted import prompt

    from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

    layers = stack("FF", F=full(SMALL, 16))
    run = engine(layers, prompt_tokens=200, max_num_batched_tokens=32)
    if is_stalled:
        run.stall_copies()
    request = run.start(prompt(96))
    run.step(3)
    (blocks,) = run.runner.rows[request.request_id].tables
    run.end(request)
    run.release_copies()
    run.settle()
    freed = run.pool.free_block_queue.get_all_free_blocks()[-6:]
    assert blocks[::-1] == [block.block_id for block in freed]
