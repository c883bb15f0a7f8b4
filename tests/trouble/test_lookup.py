"""Rows about look-up: how much of a prompt is found, and where it is loaded from."""

import pytest
from layouts import CHUNKED, FULL, STATE, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine

pytest.importorskip("vllm")

import torch
from own_layouts import hybrid_layers, state
from scripted import prompt
from vllm.v1.kv_cache_interface import CircularBufferSpec

from kvcellar.testing.oracle.layouts.recipe import BLOCK_OUTER
from kvcellar.testing.oracle.layouts.specs import SMALL, Heads, chunked, full, stack
from kvcellar.testing.oracle.layouts.specs import window as window_layer

FULL_16 = stack("FF", F=full(SMALL, 16))


def held(*missing):
    return lambda position, block: (position, block) not in missing


def keys_held(**indices_by_position):
    """Whether a block is held, from ``p<position>=indices``."""
    return lambda position, block: block in indices_by_position[f"p{position}"]


def test_vllm_57959_a_tail_in_flight_does_not_hold_up_the_request(engine):
    """Chunks 0-7 are ready, 8-9 being stored: eight are reported, in one look-up."""
    run = engine(FULL_16, prompt_tokens=400)
    tokens = prompt(161)
    run.ask(tokens[:129])
    run.stall_copies()
    run.end(run.start(tokens))
    run.forget_on_device()
    late = run.start(tokens)
    run.step()
    assert (128, 1) == (late.loaded_tokens, late.num_look_ups)
    run.release_copies()
    run.settle()


@pytest.mark.parametrize(
    ("num_tokens", "hit"), [(100_352, 99_568), (100_353, 100_352), (94_864, 94_080)]
)
def test_lmcache_5249_a_state_never_holds_the_token_to_recompute(
    engine, num_tokens, hit
):
    """State and full blocks of 784: a prompt that ends on one resumes one earlier."""
    run = engine(
        hybrid_layers(784), prompt_tokens=101_000, max_num_batched_tokens=16_384
    )
    tokens = prompt(num_tokens)
    run.ask(tokens)
    run.drop_device()
    assert hit == run.ask(tokens).loaded_tokens


@pytest.mark.parametrize(("num_tokens", "hit"), [(2816, 1408), (2817, 2816)])
@pytest.mark.parametrize("dense", [False, True])
def test_vllm_51100_prompts_that_end_on_a_state_block(engine, dense, num_tokens, hit):
    """State blocks of 1408, in both of the engine's ways of keeping states."""
    run = engine(hybrid_layers(1408), prompt_tokens=3000, dense=dense)
    tokens = prompt(num_tokens)
    run.ask(tokens)
    run.drop_device()
    assert hit == run.ask(tokens).loaded_tokens


def test_vllm_57325_the_device_copy_is_used_where_both_have_one(engine):
    """Of a prompt whose first two blocks are on the device only the rest is loaded."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(100)
    run.ask(tokens)
    run.forget_on_device(keep_tokens=32)
    partly = run.ask(tokens)
    assert (32, 64) == (partly.local_tokens, partly.loaded_tokens)
    assert {0: 4} == run.num_copied("load")
    again = run.ask(tokens)
    assert (96, 0) == (again.local_tokens, again.loaded_tokens)


@pytest.mark.xfail(
    raises=AssertionError,
    reason="the engine asks for one run of tokens behind the device's prefix, so its "
    "own blocks 4 and 5 behind a gap are computed again; the connector cannot say "
    "otherwise",
)
def test_vllm_57325_device_and_host_blocks_that_alternate(engine):
    """Device has blocks 0, 1, 4, 5 and host 2, 3: hit 96 with exactly two loads."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(100)
    first = run.ask(tokens)
    gap = {
        block.block_id
        for key in first.request.block_hashes[2:4]
        for block in run.pool.get_cached_block(key, [0])
    }
    run.pool.evict_blocks(gap)
    assert all(run.index.evict_one() for _ in range(2))
    assert [1, 2, 3, 4] == run.held_chunks(first)
    assert 96 == run.ask(tokens).hit_tokens
    assert {0: 2} == run.num_copied("load")


def test_mooncake_4153_a_long_block_is_not_read_as_its_shorter_prefixes():
    """Hashes of 64, blocks of 3584: sharing 2000 tokens of one hits nothing."""
    layout = layout_of(group(0, FULL, 3584), hash_tokens=64, alignment=64)
    run = FakeEngine(layout, plan_geometry(layout, 4096), Settings())
    tokens = prompt(3700)
    first = run.start("first", tokens)
    run.compute(first, 3700)
    run.run_jobs()
    sibling = run.start("sibling", tokens[:2000] + prompt(2000, 1))
    assert 0 == run.look_up(sibling)
    assert 3584 == run.look_up(run.start("same", tokens))


def test_vllm_50359_a_hit_shortened_by_one_group_is_one_that_all_can_load():
    """Full keys at 32 and 64, state keys at 32 and 48: 32, and not 48."""
    layout = layout_of(
        group(0, FULL, 32), group(1, STATE, 16), hash_tokens=16, alignment=16
    )
    rules = HybridRules(layout)
    assert 32 == rules.longest_hit(100, keys_held(p0={0, 1}, p1={1, 2}))


def test_sglang_35129_tokens_outside_the_window_do_not_veto(engine):
    """A session of 110,000 tokens, of whose window only the end is kept, hits whole."""
    layers = stack("FW", F=full(SMALL, 64), W=window_layer(SMALL, 128, 64))
    run = engine(
        layers,
        extra={"spaced_checkpoint_share": 0},
        prompt_tokens=111_000,
        max_num_batched_tokens=16_384,
    )
    tokens = prompt(110_000)
    first = run.ask(tokens)
    assert {0: 1718, 1: 2} == run.num_copied("store")
    run.drop_device()
    following = run.ask(first.tokens + prompt(500, 1))
    assert 109_952 == following.loaded_tokens


def test_vllm_ascend_16270_the_longest_block_sets_the_granularity():
    """Blocks of 128, 4096, 32, 2 and 8: 5000 tokens hit 4096, 2048 hit nothing."""
    layout = layout_of(
        group(0, WINDOW, 128, 128),
        group(1, FULL, 4096),
        group(2, WINDOW, 32, 64),
        group(3, WINDOW, 2, 8),
        group(4, WINDOW, 8, 16),
        hash_tokens=2,
        alignment=4096,
    )
    rules = HybridRules(layout)
    assert 4096 == rules.chunk_tokens
    assert [4096, 0] == [rules.longest_hit(n, held()) for n in (5000, 2048)]


def live_window_layers():
    """Full and four states of 3584, a window in blocks of 64, a scratch ring of 4."""
    attention = full(SMALL, 3584)
    ring = CircularBufferSpec(
        block_size=4, num_kv_heads=1, head_size=8, head_size_v=0, dtype=torch.float32
    )
    return stack(
        "SSSSFWR",
        S=state(3584, attention),
        F=attention,
        W=window_layer(Heads(1, 2), 512, 64),
        R=ring,
    )


def test_vllm_54413_a_live_window_is_left_out_and_does_not_veto(engine):
    """Six of seven groups take part, and with all of them 4000 tokens hit 3584."""
    run = engine(live_window_layers(), prompt_tokens=8000, order=BLOCK_OUTER)
    layout = run.planner.layout
    assert (6, 64) == (len(layout.groups), layout.hash_block_tokens)
    assert 3584 == run.index.rules.longest_hit(4000, held())


def test_vllm_54413_states_that_the_engine_keys_wrongly_are_not_kept(engine):
    """A miss, never wrong bytes: the engine ends no step where a state ends.

    A window in blocks of 64 makes 64 the engine's own block size. It then hands over
    the state of 1984 tokens under the key of 3584, which is not the step's end.
    """
    run = engine(live_window_layers(), prompt_tokens=8000, order=BLOCK_OUTER)
    tokens = prompt(4000)
    run.ask(tokens)
    run.drop_device()
    assert 0 == run.ask(tokens).loaded_tokens


def test_vllm_51161_where_a_local_chunk_begins_no_local_block_is_needed(engine):
    """full(16) and local(16, 64): 200 tokens hit 192 with 12 full blocks alone."""
    layers = stack("FC", F=full(SMALL, 16), C=chunked(SMALL, 64, 16))
    run = engine(layers, prompt_tokens=300)
    tokens = prompt(200)
    run.ask(tokens)
    run.drop_device()
    assert 192 == run.ask(tokens).loaded_tokens
    assert {FULL: 12, CHUNKED: 0} == {
        run.planner.layout.groups[p].kind: n for p, n in run.num_copied("load").items()
    }


def test_vllm_51161_inside_a_local_chunk_its_blocks_are_needed():
    """Without full block 11 the hit is 176, and it reads local blocks 8 to 10."""
    layout = layout_of(
        group(0, FULL, 16), group(1, CHUNKED, 16, 64), hash_tokens=16, alignment=16
    )
    rules = HybridRules(layout)
    assert 176 == rules.longest_hit(200, held((0, 11)))
    assert ((1, range(8, 11)),) == rules.checkpoint_blocks(176)


def test_vllm_51161_after_the_last_chunk_is_evicted(engine):
    """Host memory loses full block 11: the hit is 176, with three local blocks."""
    layers = stack("FC", F=full(SMALL, 16), C=chunked(SMALL, 64, 16))
    run = engine(layers, prompt_tokens=300)
    tokens = prompt(200)
    run.ask(tokens)
    assert run.index.evict_one()
    run.drop_device()
    assert 176 == run.ask(tokens).loaded_tokens
