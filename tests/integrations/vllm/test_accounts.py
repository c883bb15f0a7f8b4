"""Accounts under vLLM's real scheduler say what the engine itself counts."""

import pytest

pytest.importorskip("vllm")

from own_layouts import plan
from scripted import Scripted, prompt

from kvcellar.core.checks import check_ledger
from kvcellar.integrations.vllm import accounts
from kvcellar.integrations.vllm.accounts import opening_of
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack
from kvcellar.testing.oracle.setup import OracleOptions, drawn, make_oracle


class Requests:
    """Notes what vLLM itself says of each request when it first runs."""

    def __init__(self, oracle):
        self.engines, self.ours = {}, {}
        self._requests = oracle.scheduler.requests
        oracle.planner.ledger.on_account = self._note

    def _note(self, account):
        request = self._requests[account.request_id]
        stats = request.prefill_stats
        self.ours[account.request_id] = (
            account.prompt_tokens,
            account.device_tokens,
            account.host_tokens,
        )
        self.engines[account.request_id] = (
            stats.num_prompt_tokens,
            stats.num_local_cached_tokens,
            stats.num_external_cached_tokens,
        )


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["gemma-3-27b", "deepseek-v4-flash", "qwen3-next"])
def test_served_tokens_are_what_the_engine_did_not_compute(name, mode, ahead):
    """Over a random run, prompt, device and host tokens of every request are vLLM's own
    counts, and no host token is counted that was not loaded."""
    options = OracleOptions(name, mode, seed=3, failure_rate=0.02)
    oracle = make_oracle(drawn(options, async_scheduling=ahead, num_connectors=1))
    try:
        noted = Requests(oracle)
        oracle.run(150)
        ledger = oracle.planner.ledger
    finally:
        oracle.close()
    assert len(noted.ours) > 20
    assert noted.engines == noted.ours
    check_ledger(ledger)
    assert len(noted.ours) == len(ledger.recent)
    assert ledger.host_tokens <= oracle.planner.counters.loaded_tokens


@pytest.fixture
def run():
    """A scripted engine with full attention only, in chunks of 16 tokens."""
    layout = plan(
        stack("FF", F=full(SMALL, 16)),
        extra_config={"host_memory": "64MiB"},
        prompt_tokens=500,
    )
    scripted = Scripted(layout)
    yield scripted
    scripted.finish()
    scripted.close()


def reasons(run):
    """The last account's computed tokens by reason."""
    account = run.planner.ledger.recent[-1]
    return {stretch.reason.value: stretch.num_tokens for stretch in account.misses}


def test_a_prompt_under_another_salt_is_told_from_a_new_one(run):
    """The same 65 tokens with a salt share nothing, and the account says why."""
    run.ask(prompt(65))
    assert {"never_seen": 64, "last_boundary": 1} == reasons(run)
    run.ask(prompt(65), cache_salt="tenant")
    assert {"other_identity": 64, "last_boundary": 1} == reasons(run)
    run.ask(prompt(65), cache_salt="tenant")
    assert {"last_boundary": 1} == reasons(run)


def test_a_request_that_must_not_read_is_counted_as_such(run):
    """All of it is computed though all of it is there."""
    run.ask(prompt(65))
    run.ask(prompt(65), skip=True)
    assert {"not_asked": 65} == reasons(run)


def test_openings_stand_for_the_first_chunk_only(run):
    """Equal first chunks are equal, whatever follows; a short prompt has none."""
    tokens = prompt(65)
    first, longer, short = (
        run.start(t).request for t in (tokens, [*tokens, 1], tokens[:16])
    )
    assert opening_of(first, 16) == opening_of(longer, 16)
    assert opening_of(first, 32) != opening_of(first, 16)
    assert opening_of(short, 16) is None
    first.prompt_embeds = object()
    assert opening_of(first, 16) is None
    first.prompt_embeds = None
    run.settle()


def test_one_line_at_debug_level(run, monkeypatch):
    """The line has the request's id, and the sum with its reasons."""
    lines = []
    monkeypatch.setattr(
        accounts.logger, "debug", lambda text, *values: lines.append(text % values)
    )
    run.ask(prompt(65))
    run.drop_device()
    run.planner.ledger.on_account = accounts.log_account
    answer = run.ask(prompt(65))
    assert lines == [
        f"request {answer.request_id}: 65 prompt tokens = 0 device + 64 host + "
        "1 computed (1 last_boundary)"
    ]
