"""Controls from the engine's request to the planner, on vLLM's scheduler."""

import logging

import pytest

pytest.importorskip("vllm")

from own_layouts import plan
from scripted import Scripted, prompt

from kvcellar.core.controls import RequestControls
from kvcellar.index.checks import check_index
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

FULL_16 = stack("FF", F=full(SMALL, 16))


@pytest.fixture
def start():
    made = []

    def make(**settings):
        extra = {"host_memory": "64MiB"} | settings
        made.append(Scripted(plan(FULL_16, prompt_tokens=400, extra_config=extra)))
        return made[-1]

    yield make
    for run in made:
        run.finish()
        run.close()


def test_limits_and_skips_reach_the_planner(start):
    """Each for its own request, and never wider than the settings."""
    run, tokens = start(max_load_tokens=160), prompt(321)
    run.ask(tokens, params={"skip_store": True})
    assert {} == run.index.nodes
    run.drop_device()
    answer = run.ask(tokens, params={"max_offload_tokens": 200})
    assert list(range(1, 13)) == run.held_chunks(answer)
    for wish, expected in (
        ({"max_load_tokens": 100}, 96),
        ({"max_load_tokens": 1000}, 160),
        ({"skip_load": True}, 0),
    ):
        run.drop_device()
        answer = run.ask(tokens, params=wish | {"skip_store": True})
        assert expected == answer.loaded_tokens


def test_a_lease_outlives_everything_that_comes_after_it(start):
    """``keep_seconds`` after its end, and ``keep_until`` a moment."""
    run = start(host_memory="16KiB", lease_share=0.9)  # 64 chunks
    kept, until = prompt(321), prompt(321, seed=1)
    run.ask(kept, params={"keep_seconds": 3600})
    run.ask(until, params={"keep_until": 2.0**33})  # in the year 2242
    for seed in range(2, 60):
        run.ask(prompt(321, seed=seed))
    assert run.index.counters.evicted_chunks
    run.drop_device()
    loaded = [run.ask(tokens).loaded_tokens for tokens in (kept, until)]
    assert [320, 320] == loaded


def test_a_decoding_request_that_may_not_be_stored_is_not_looked_at(start, monkeypatch):
    """With ``skip_store`` a long answer costs the scheduler side nothing per step."""
    run, offers = start(), []
    following = run.side._following
    offer = following._offer
    monkeypatch.setattr(
        following, "_offer", lambda *args: (offers.append(args), offer(*args))
    )
    run.ask(prompt(100), new_tokens=100, params={"skip_store": True})
    assert len(offers) <= 4
    assert {} == run.index.nodes


def test_the_record_of_a_request_that_never_ran_goes_with_it(start):
    """Aborted while it waits: nothing is remembered."""
    run = start()
    answer = run.start(prompt(100), params={"priority": 2, "tags": ["a"]})
    wanted = RequestControls(priority=2, tags=("a",))
    assert wanted == run.planner.records[answer.request_id].controls
    run.cancel(answer)
    run.settle()
    assert {} == run.planner.records


def test_what_cannot_be_read_is_warned_of_once_per_key(start, caplog):
    """A client is wrong in every request: two keys, two warnings, four counts."""
    run = start()
    with caplog.at_level(logging.WARNING, "vllm.kvcellar"):
        for seed in range(2):
            wrong = {"priority": "high", "lease": 5, "skip_store": True}
            run.ask(prompt(33, seed), params=wrong)
    assert 4 == run.side._control_reader.num_bad
    said = [r.getMessage() for r in caplog.records if "a control" in r.getMessage()]
    assert 2 == len(said)
    assert "priority='high' cannot be used; write a whole number" in said[0]
    assert "lease=5 is not known; the nearest known key is" in said[1]
    assert {} == run.index.nodes  # what could be read counts


@pytest.mark.parametrize(
    ("tenant_by", "loud"),
    [("cache_salt", {"cache_salt": "a"}), ("tag", {"params": {"tags": ["a", "b"]}})],
)
def test_a_tenant_keeps_to_its_share(start, tenant_by, loud):
    """64 chunks in all: the loud tenant never holds more than half of them."""
    run = start(host_memory="16KiB", tenant_share=0.5, tenant_by=tenant_by)
    quiet = prompt(321)
    run.ask(quiet)
    for seed in range(1, 8):
        run.ask(prompt(321, seed=seed), **loud)
        check_index(run.index)
    assert 20 + 32 >= len(run.index.nodes) > 20
    run.drop_device()
    assert 320 == run.ask(quiet).loaded_tokens
