"""Rows about speculative decoding: the drafter's margin, and room for its tokens."""

import pytest

pytest.importorskip("vllm")

from own_layouts import state
from scripted import prompt

from kvcellar.layout.groups import AttentionKind
from kvcellar.testing.oracle.layouts.specs import SMALL, Heads, full, stack, window


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_vllm_57104_two_loads_that_fill_the_device_both_end(engine, mode):
    """511 blocks, hits of 256 and 255 blocks, three draft tokens: both requests end."""
    run = engine(
        stack("FF", F=full(SMALL, 16)),
        prompt_tokens=4096,
        draft=3,
        max_model_len=4200,
        num_device_blocks=512,
        max_num_batched_tokens=8192,
        extra={"mode": mode},
    )
    prompts = [prompt(4096, 1), prompt(4080, 2)]
    fillers = [prompt(4096, seed) for seed in range(3, 6)]
    for tokens in prompts + fillers:  # in lazy mode the fillers push the two out
        run.ask(tokens)
    run.forget_on_device()
    both = [run.start(tokens, new_tokens=8) for tokens in prompts]
    run.settle()
    assert [4080, 4064] == [answer.hit_tokens for answer in both]
    assert all(len(a.tokens) >= n + 8 for a, n in zip(both, (4096, 4080), strict=True))


@pytest.mark.parametrize("num_tokens", [1024, 1025, 1300])
def test_spark_vllm_docker_373_a_drafters_window_keeps_its_margin(engine, num_tokens):
    """full(256), swa(64, 128) and a drafter's: 1025 tokens hit at least 768."""
    layers = stack(
        "FWW", F=full(SMALL, 256), W=window(Heads(1, SMALL.size * 4), 128, 64)
    )
    run = engine(layers, prompt_tokens=1400, draft=1)
    assert [False, False, True] == [g.is_draft for g in run.planner.layout.groups]
    tokens = prompt(num_tokens)
    run.ask(tokens)
    run.drop_device()
    assert 768 <= run.ask(tokens).loaded_tokens < num_tokens


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("num_tokens", [272, 273])
def test_vllm_52735_a_drafter_does_not_cost_states_their_only_chunk(
    engine, dense, num_tokens
):
    """Full with draft layers, three states: 17 chunks hit all but one, never none."""
    attention = full(SMALL, 16)
    layers = stack("SSSF", S=state(16, attention), F=attention)
    run = engine(layers, prompt_tokens=300, draft=1, dense=dense)
    kinds = [group.kind for group in run.planner.layout.groups]
    assert 3 == kinds.count(AttentionKind.STATE)
    tokens = prompt(num_tokens)
    run.ask(tokens)
    run.drop_device()
    assert 256 == run.ask(tokens).loaded_tokens


@pytest.mark.parametrize("draft", [0, 1])
def test_vllm_42258_with_and_without_a_drafter_what_is_stored_is_found(engine, draft):
    """full(32) and two of swa(16, 32): a prompt of any length hits near its end."""
    wide = Heads(1, SMALL.size * 2)
    layers = stack("FWW", F=full(SMALL, 32), W=window(wide, 32, 16))
    run = engine(layers, prompt_tokens=400, draft=draft)
    for num_tokens in range(97, 200, 7):
        run.ask(prompt(num_tokens, num_tokens))
        run.drop_device()
        hit = run.ask(prompt(num_tokens, num_tokens)).loaded_tokens
        assert num_tokens - 1 - 32 * (1 + draft) < hit < num_tokens
