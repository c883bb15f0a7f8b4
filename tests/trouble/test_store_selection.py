"""Rows about what is stored: enough for the next prompt, and nothing unreachable."""

import pytest
from layouts import FULL, STATE, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine

pytest.importorskip("vllm")

from own_layouts import hybrid_layers
from scripted import prompt

from kvcellar.testing.oracle.layouts.specs import SMALL, Heads, full, stack, window

FULL_16 = stack("FF", F=full(SMALL, 16))


def full_and_window(full_block, window_block, window_tokens):
    """Two layers with pages of one size."""
    wide = Heads(1, SMALL.size * full_block // window_block)
    return stack(
        "FW", F=full(SMALL, full_block), W=window(wide, window_tokens, window_block)
    )


def test_vllm_57610_an_edit_at_the_prompts_end_keeps_the_rest(engine):
    """full(32) and swa(16, 1024): after 2100 tokens, sharing 2079 hits 2048."""
    run = engine(full_and_window(32, 16, 1024), prompt_tokens=2200)
    tokens = prompt(2100)
    run.ask(tokens)
    run.drop_device()
    assert 2048 == run.ask(tokens[:2079] + prompt(50, 1)).loaded_tokens


def test_vllm_57610_the_second_edit_hits_at_the_junction(engine):
    """The first sibling leaves a checkpoint where it left the path: 2048."""
    run = engine(full_and_window(32, 16, 1024), prompt_tokens=2200)
    tokens = prompt(2100)
    for seed in (0, 1, 2):
        run.drop_device()
        last = run.ask(tokens[:2079] + prompt(50, seed))
    assert 2048 == last.loaded_tokens


def test_vllm_56972_states_after_the_prompt_are_kept(engine):
    """full(16) and ssm(16), 32 tokens and 64 decoded: the next turn hits 80."""
    run = engine(hybrid_layers(16), prompt_tokens=200, dense=True)
    first = run.ask(prompt(32), new_tokens=64)
    assert 96 == len(first.tokens)
    run.drop_device()
    assert 80 == run.ask(first.tokens + prompt(8, 1)).loaded_tokens


def test_vllm_56795_a_step_without_room_leaves_no_gap():
    """Chunks 0-3 are refused while all is pinned; the next step stores from 0."""
    layout = layout_of(
        group(0, FULL, 16), group(1, STATE, 16), hash_tokens=16, alignment=16
    )
    run = FakeEngine(layout, plan_geometry(layout, 16 * 64), Settings())
    holder = run.start("holder", prompt(16 * 20 + 1))
    run.compute(holder, 16 * 20)
    run.run_jobs()
    late = run.start("late", prompt(16 * 8 + 1, 1))
    run.compute(late, 16 * 4)
    assert run.offloader.counters.stores_without_room
    assert late.hashes[0] not in run.offloader.index.nodes
    run.finish(holder)
    run.compute(late, 16 * 4)
    run.run_jobs()
    nodes = run.offloader.index.nodes
    assert [True] * 8 == [key in nodes for key in late.hashes]
    assert 128 == run.look_up(run.start("again", prompt(16 * 8 + 1, 1)))


def test_vllm_53498_every_block_of_a_chunked_prefill_is_found(engine):
    """160 tokens, 32 per step, one decoded: ten blocks stored, and ten found."""
    run = engine(FULL_16, prompt_tokens=200, max_num_batched_tokens=32)
    tokens = prompt(160)
    run.ask(tokens)
    assert {0: 10} == run.num_copied("store")
    run.drop_device()
    assert 160 == run.ask(tokens + prompt(16, 1)).loaded_tokens
    assert {0: 10} == run.num_copied("load")


def test_vllm_51886_a_repeat_and_a_second_branch_hit(engine):
    """full(256) and swa(64, 128): a repeat hits 768; after one branch, others 512."""
    run = engine(full_and_window(256, 64, 128), prompt_tokens=1200)
    tokens = prompt(1000)
    run.ask(tokens)
    run.drop_device()
    assert 768 == run.ask(tokens).loaded_tokens
    run.drop_device()
    run.ask(tokens[:700] + prompt(300, 1))
    run.drop_device()
    assert 512 == run.ask(tokens[:700] + prompt(300, 2)).loaded_tokens


def test_vllm_51886_the_first_branch_hits(engine):
    """Sharing 700 of 1000 tokens with the only earlier prompt hits 512.

    A checkpoint is as large as two of the three chunks here; the share must allow it.
    """
    extra = {"spaced_checkpoint_share": 1}
    run = engine(full_and_window(256, 64, 128), extra=extra, prompt_tokens=1200)
    tokens = prompt(1000)
    run.ask(tokens)
    run.drop_device()
    assert 512 == run.ask(tokens[:700] + prompt(300, 1)).loaded_tokens


def test_vllm_48596_the_last_full_block_is_stored_and_safe(engine):
    """Blocks of 4, prompt 6, three decoded: blocks 0 and 1, copied before reuse."""
    run = engine(
        stack("F", F=full(SMALL, 4)),
        prompt_tokens=20,
        max_model_len=32,
        num_device_blocks=9,
    )
    run.stall_copies()
    first = run.start(prompt(6), new_tokens=3)
    run.end(first)
    assert (9, {0: 2}) == (len(first.tokens), run.num_copied("store"))
    sources = {b for _, blocks, _ in run.copies("store") for b in blocks}
    second = run.start(prompt(30, 1))
    run.step()
    # It takes all eight blocks, the two sources too: their copies had to end first.
    taken = set(run.runner.rows[second.request_id].tables[0])
    assert (2, True) == (len(sources), sources <= taken)
    run.release_copies()
    run.settle()
    assert 31 == len(second.tokens)
    run.drop_device()
    assert 8 == run.ask(first.tokens[:9]).loaded_tokens


@pytest.mark.parametrize(
    ("num_tokens", "decoded", "num_blocks"),
    [(64, False, 4), (64, True, 7), (70, False, 4)],
)
def test_vllm_43797_decoded_tokens_are_stored_only_if_wanted(
    engine, num_tokens, decoded, num_blocks
):
    """64 decoded tokens: four blocks of the prompt alone, seven with the answer."""
    run = engine(FULL_16, prompt_tokens=200, extra={"store_decoded": decoded})
    run.ask(prompt(num_tokens), new_tokens=64)
    assert {0: num_blocks} == run.num_copied("store")


@pytest.mark.parametrize(
    ("window_block", "window_tokens", "num_blocks", "kept"),
    [(8, 8, 8, [3, 7]), (16, 32, 7, [0, 1, 2, 3, 4, 5])],
)
def test_vllm_42258_only_window_blocks_that_a_hit_can_read_are_kept(
    window_block, window_tokens, num_blocks, kept
):
    """full(32): of window blocks those below a boundary, and no others."""
    layout = layout_of(
        group(0, FULL, 32),
        group(1, WINDOW, window_block, window_tokens),
        hash_tokens=8,
        alignment=32,
    )
    rules = HybridRules(layout)
    boundaries = range(32, num_blocks * window_block + 1, 32)
    reachable = {
        block
        for boundary in boundaries
        for position, blocks in rules.checkpoint_blocks(boundary)
        for block in blocks
    }
    assert kept == sorted(reachable)


def test_vllm_42258_what_is_stored_is_what_look_ups_load(engine):
    """Every block that a prompt stored is read back by its repeat, at four lengths."""
    extra = {"spaced_checkpoint_share": 0}  # a repeat reads what is kept at the end
    run = engine(full_and_window(32, 16, 32), extra=extra, prompt_tokens=400)
    for seed, num_tokens in enumerate((112, 129, 255, 300)):
        before = run.num_copied("store"), run.num_copied("load")
        run.drop_device()
        run.ask(prompt(num_tokens, seed))
        run.drop_device()
        run.ask(prompt(num_tokens, seed))
        after = run.num_copied("store"), run.num_copied("load")
        stored, loaded = (
            [new[p] - old[p] for p in new]
            for old, new in zip(before, after, strict=True)
        )
        assert stored == loaded


def test_vllm_56396_a_ring_group_is_neither_stored_nor_loaded(engine):
    """full(32), swa(64, 128) and ring(8): a repeat of 256 tokens hits 192."""
    run = engine("ring")
    layout = run.planner.layout
    assert [0, 1] == [g.group_id for g in layout.groups]
    assert 3 == len(run.layout.worker_config.kv_cache_groups)
    tokens = prompt(256)
    run.ask(tokens)
    run.drop_device()
    assert 192 == run.ask(tokens).loaded_tokens
    by_kind = {g.kind: run.num_copied("load")[p] for p, g in enumerate(layout.groups)}
    assert {FULL: 6, WINDOW: 2} == by_kind


def test_vllm_56396_lazy_stores_do_not_wait_for_ring_blocks(engine):
    """In lazy mode what the device pushes out is stored and found, ring or not."""
    run = engine("ring", extra={"mode": "lazy"})
    for seed in range(6):
        run.ask(prompt(500, seed))
    assert (0, 0) == (
        run.planner.counters.stores_without_block,
        run.planner.counters.lost_chunks,
    )
    run.forget_on_device()
    assert 448 == run.ask(prompt(500, 0)).loaded_tokens


def test_vllm_56396_the_engine_group_that_rings_is_no_part_of_the_capacity(engine):
    """Host memory is cut for the full and the window group alone."""
    geometry = engine("ring").planner.slabs.geometry
    assert 2 == len(geometry.class_of) == len(geometry.blocks_per_cell)


def under_steady_load(engine, mode, step_tokens):
    """64 device blocks, 30 requests of 16 blocks that end as fast as they are let."""
    run = engine(
        FULL_16,
        prompt_tokens=257,
        max_model_len=300,
        num_device_blocks=65,
        max_num_batched_tokens=step_tokens,
        extra={"mode": mode},
    )
    for seed in range(30):
        run.start(prompt(257, seed))
    run.settle()
    for seed in (98, 99):  # these push out what a lazy store still waits for
        run.ask(prompt(257, seed), skip=True)
    run.forget_on_device()
    return run


@pytest.mark.parametrize(
    ("mode", "step_tokens"), [("eager", 1024), ("eager", 256), ("lazy", 256)]
)
def test_lmcache_4847_nothing_is_lost_under_steady_load(engine, mode, step_tokens):
    """64 device blocks, requests of 16 that end one after another: all are stored."""
    run = under_steady_load(engine, mode, step_tokens)
    counters = run.planner.counters
    assert (0, 0) == (counters.stores_without_block, counters.lost_chunks)
    hits = [run.ask(prompt(257, seed)).loaded_tokens for seed in range(30)]
    assert [256] * 30 == hits


def test_lmcache_4847_what_a_lazy_store_loses_is_counted(engine):
    """One step takes all 64 blocks again: stored and lost chunks add up to all."""
    run = under_steady_load(engine, "lazy", 1024)
    counters = run.planner.counters
    assert counters.stored_chunks + counters.lost_chunks >= 480
