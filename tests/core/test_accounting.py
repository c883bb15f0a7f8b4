"""Every prompt token is device, host, or computed for a reason; each reason's case."""

import pytest
from layouts import LAYOUTS

from kvcellar.config import Settings
from kvcellar.core import events
from kvcellar.core.account import Draft, Stretch
from kvcellar.core.checks import check_ledger
from kvcellar.core.ledger import HALVED_AFTER, MOST_ACCOUNTS, BusyPrefixes, Ledger
from kvcellar.core.openings import Openings
from kvcellar.errors import InvariantError
from kvcellar.index.departures import Departures
from kvcellar.layout.host import plan_geometry
from kvcellar.reasons import MissReason
from kvcellar.testing.fake_engine import FakeEngine

PROMPT = list(range(41))  # ten chunks of four tokens, and one token
OTHER = list(range(100, 141))


def make_engine(name="full", cells=100, **options):
    layout = LAYOUTS[name]
    cell_bytes = sum(layout.cell_bytes(p) for p in range(len(layout.groups)))
    geometry = plan_geometry(layout, cells * cell_bytes)
    return FakeEngine(layout, geometry, Settings(**options))


def serve(engine, name, tokens, *, copies=True, finish=True):
    """Look up, load, compute; the account's parts by name."""
    request = engine.start(name, list(tokens))
    if request.is_loading:
        engine.run_jobs()
    engine.compute(request, len(tokens))
    if copies:
        engine.run_jobs()
    if finish:
        engine.finish(request)
    return parts(engine)


def parts(engine):
    """What the last account says: host tokens, and tokens by reason."""
    check_ledger(engine.offloader.ledger)
    account = engine.offloader.ledger.recent[-1]
    found = {s.reason.value: s.num_tokens for s in account.misses}
    if account.host_tokens:
        found["host"] = account.host_tokens
    if account.device_tokens:
        found["device"] = account.device_tokens
    return found


def test_a_new_prompt_was_never_seen_and_comes_back_from_the_host():
    """First all is new but the tail behind the last boundary, then all is served."""
    engine = make_engine()
    assert {"never_seen": 40, "last_boundary": 1} == serve(engine, "a", PROMPT)
    assert {"host": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)
    assert {"host": 40, "last_boundary": 3} == serve(engine, "c", [*PROMPT, 7, 8])


def test_a_copy_under_way_is_storing():
    """Chunks whose copy has not ended are not served, and that is said."""
    engine = make_engine()
    serve(engine, "a", PROMPT, copies=False)
    assert {"storing": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)


def test_chunks_without_a_checkpoint():
    """A prompt that leaves a known path between checkpoints computes from there."""
    engine = make_engine("deepseek-v4-like", spaced_checkpoint_share=0.0)
    long = list(range(32 * 6 + 1))
    serve(engine, "a", long)
    found = serve(engine, "b", [*long[: 32 * 3], *range(1000, 1040)])
    assert {"no_checkpoint": 96, "never_seen": 32, "last_boundary": 8} == found


def test_what_another_request_computes_is_in_progress():
    """Two prompts share 20 tokens; the first has computed 8 of them, not yet stored."""
    engine = make_engine()
    first = engine.start("a", list(PROMPT))
    engine.compute(first, 8)
    second = engine.start("b", [*PROMPT[:20], *OTHER])
    engine.compute(second, 100)
    assert parts(engine) == {
        "storing": 8,
        "in_progress": 12,
        "never_seen": 40,
        "last_boundary": 1,
    }


def test_a_request_that_waits_is_in_progress_too():
    """A prompt admitted but not computed yet is found by the next one."""
    engine = make_engine()
    engine.start("a", list(PROMPT))
    engine.compute(engine.start("b", list(PROMPT)), 100)
    assert {"in_progress": 40, "last_boundary": 1} == parts(engine)


def test_evicted_chunks_say_when_and_for_whom():
    """With room for ten chunks, a second prompt's ten drive the first one's out."""
    engine = make_engine(cells=10)
    serve(engine, "a", PROMPT)
    serve(engine, "b", OTHER)
    assert {"evicted": 40, "last_boundary": 1} == serve(engine, "c", PROMPT)
    evicted = engine.offloader.ledger.recent[-1].misses[0].departure
    assert "b" == evicted.request_id
    assert 0 < evicted.at < engine.offloader.ledger.recent[-1].at


def test_no_room_is_told_from_eviction():
    """While a running request pins all ten chunks, another prompt finds no room."""
    engine = make_engine(cells=10)
    serve(engine, "a", PROMPT, finish=False)
    serve(engine, "b", OTHER)
    assert {"no_room": 40, "last_boundary": 1} == serve(engine, "c", OTHER)


def test_a_running_request_without_room_is_found_by_the_next():
    """What a running request computed and could not store has its reason already."""
    engine = make_engine(cells=10)
    serve(engine, "a", PROMPT, finish=False)
    serve(engine, "b", OTHER, finish=False)
    assert {"no_room": 40, "last_boundary": 1} == serve(engine, "c", OTHER)


def test_settings_that_leave_tokens_out_are_named():
    """max_store_tokens, store_decoded and second-touch admission, each by its name."""
    engine = make_engine(max_store_tokens=16)
    serve(engine, "a", PROMPT)
    found = serve(engine, "b", PROMPT)
    assert {"host": 16, "max_store_tokens": 24, "last_boundary": 1} == found

    engine = make_engine(admission="second-touch")
    serve(engine, "a", PROMPT)
    assert {"not_admitted": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)

    engine = make_engine(store_decoded=False)
    request = engine.start("a", list(PROMPT))
    engine.compute(request, 100)
    for token in range(12):
        engine.decode(request, token)
    engine.run_jobs()
    engine.finish(request)
    found = serve(engine, "b", [*request.tokens, 99])
    assert {"host": 40, "answer": 12, "last_boundary": 2} == found


def test_limits_of_loads_are_named():
    """max_load_tokens and min_load_tokens."""
    engine = make_engine(max_load_tokens=16)
    serve(engine, "a", PROMPT)
    found = serve(engine, "b", PROMPT)
    assert {"host": 16, "max_load_tokens": 24, "last_boundary": 1} == found

    engine = make_engine(min_load_tokens=41)
    serve(engine, "a", PROMPT)
    assert {"too_cheap": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)


def test_what_the_engine_declines_is_no_miss_of_ours():
    """All was promised and nothing taken."""
    engine = make_engine()
    serve(engine, "a", PROMPT)
    request = engine.start("b", list(PROMPT), accept=False)
    engine.compute(request, 100)
    assert {"declined": 40, "last_boundary": 1} == parts(engine)


def test_failed_copies_are_named():
    """A failed store, and after a failed load the request that computes instead."""
    engine = make_engine()
    engine.failing = {"store"}
    serve(engine, "a", PROMPT)
    engine.failing = set()
    assert {"failed_store": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)

    planner, hashes = engine.offloader, engine.requests
    request = engine.start("c", list(PROMPT))
    assert request.is_loading
    (load,) = [a for a in engine.queue if type(a).__name__ == "Load"]
    engine.queue.remove(load)
    planner.handle(events.JobDone(load.job_id, has_failed=True), 1e6)
    request.is_loading, request.num_computed = False, 0
    assert 0 == engine.look_up(request)
    planner.handle(events.Allocated("c", 0, request), 1e6)
    engine.compute(request, 100)
    assert {"failed_load": 40, "last_boundary": 1} == parts(engine)
    assert hashes


def test_a_reset_is_remembered():
    """What was held until a reset says so, and not that it was evicted."""
    engine = make_engine()
    serve(engine, "a", PROMPT)
    engine.reset()
    assert {"reset": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)


def test_the_same_tokens_under_another_salt():
    """Keys differ from the first chunk on; the tokens of that chunk are the same."""
    engine = make_engine()

    def account_of(name, tokens, salt, opening):
        request = engine.start(name, [salt, *tokens])
        planner = engine.offloader
        engine.look_up(request)
        planner.handle(events.Allocated(name, 0, request, opening), 1e6)
        engine.compute(request, 100)
        return parts(engine)

    assert account_of("a", PROMPT, 1, opening=5)["never_seen"] == 40
    assert account_of("b", PROMPT, 2, opening=5)["other_identity"] == 40
    assert account_of("c", OTHER, 2, opening=6)["never_seen"] == 40


def test_a_request_that_was_never_looked_up():
    """It may not read the cache; all it computes has that one reason."""
    engine = make_engine()
    serve(engine, "a", PROMPT)
    request = engine.start("b", list(PROMPT), accept=False)
    engine.finish(request)
    engine.requests["b"] = request
    engine.compute(request, 100)
    assert {"not_asked": 41} == parts(engine)


def test_a_resumed_request_is_counted_once():
    """Preempted and admitted again, a request keeps the account of its first time."""
    engine = make_engine()
    request = engine.start("a", list(PROMPT))
    engine.compute(request, 20)
    engine.run_jobs()
    request.num_computed = 0
    engine.look_up(request)
    engine.offloader.handle(events.Allocated("a", 0, request), 1e6)
    engine.compute(request, 100)
    assert {"never_seen": 40, "last_boundary": 1} == parts(engine)
    assert 1 == len(engine.offloader.ledger.recent)
    assert 41 == engine.offloader.ledger.computed_tokens


def test_a_request_that_ends_before_it_runs_has_no_account():
    """Its tokens were neither served nor computed."""
    engine = make_engine()
    engine.finish(engine.start("a", list(PROMPT)))
    assert [] == list(engine.offloader.ledger.recent)
    assert {"never_seen": 40, "last_boundary": 1} == serve(engine, "b", PROMPT)


@pytest.mark.parametrize("first_token", [0, 12, 16, 24, 30, 41, 44])
def test_a_draft_is_cut_where_computing_begins(first_token):
    """Wherever the engine begins, served and computed tokens add up to the prompt."""
    draft = Draft(local_tokens=16, loaded_tokens=8)
    draft.add(32, MissReason.NO_CHECKPOINT)
    draft.add(20, MissReason.STORING)  # explained already
    draft.add(60, MissReason.NEVER_SEEN)
    account = draft.close("a", 1.0, first_token, prompt_tokens=41)
    ledger = Ledger()
    ledger.enter(account)
    check_ledger(ledger)
    assert min(first_token, 41) == account.device_tokens + account.host_tokens
    assert account.host_tokens == min(max(first_token - 16, 0), 8)
    replayed = [s for s in account.misses if s.reason is MissReason.REPLAYED]
    assert ([Stretch(first_token, 24, MissReason.REPLAYED)] * (first_token < 24)) == (
        replayed
    )


def test_the_check_finds_what_does_not_add_up():
    """A stretch that is missing, and a total that is not the sum."""
    ledger = Ledger()
    ledger.enter(Draft(0, 0).close("a", 1.0, 0, prompt_tokens=5))
    check_ledger(ledger)
    ledger.host_tokens += 1
    with pytest.raises(InvariantError, match="host_tokens"):
        check_ledger(ledger)
    ledger.host_tokens -= 1
    account = ledger.recent.pop()
    ledger.recent.append(type(account)("a", 1.0, 5, 0, 0, account.misses[:0]))
    with pytest.raises(InvariantError, match="ends at 0"):
        check_ledger(ledger)


def test_the_busiest_prefixes_are_those_of_late():
    """What served more long ago makes room for what serves now; counts stay exact."""
    prefixes = BusyPrefixes(1)
    for _ in range(3 * HALVED_AFTER):
        prefixes.count(b"old", 100, 0)
    for _ in range(2 * HALVED_AFTER):
        prefixes.count(b"new", 100, 50)
    ((key, newest),) = prefixes.busiest(1)
    assert (b"new", 2 * HALVED_AFTER) == (key, newest.num_requests)
    assert 2 * HALVED_AFTER * 100 == newest.served_tokens
    assert 3 * HALVED_AFTER == prefixes.by_key[b"old"].num_requests


def test_prefixes_that_returned_come_first():
    """A long conversation is resumed at each place once; that is not busy."""
    prefixes = BusyPrefixes(9)
    prefixes.count(b"long", 9000, 0)
    for key in (b"short", b"short", b"shorter", b"shorter"):
        prefixes.count(key, 100 + len(key) % 7, 0)
    assert [b"short", b"shorter", b"long"] == [key for key, _ in prefixes.busiest(9)]


def test_memories_are_bounded():
    """Departures, openings, prefixes and accounts keep the latest of each."""
    departures = Departures(3)
    for number in range(5):
        departures.note(bytes([number]), MissReason.EVICTED)
    departures.note(b"\x02", MissReason.LOST)
    departures.note(b"\x09", MissReason.LOST)
    assert 3 == len(departures)
    assert departures.find(b"\x03") is None
    assert MissReason.LOST is departures.find(b"\x02").reason
    departures.forget([b"\x02"])
    assert departures.find(b"\x02") is None

    openings = Openings(2)
    assert [False] * 3 == [openings.meets_other(n, b"a") for n in (1, 2, 3)]
    assert openings.meets_other(3, b"b")
    assert not openings.meets_other(1, b"b")  # forgotten
    assert not openings.meets_other(None, b"b")

    prefixes = BusyPrefixes(2)
    for number in range(6):
        for _ in range(number + 1):
            prefixes.count(bytes([number]), 100, 50)
    assert [b"\x05"] == [key for key, _ in prefixes.busiest(1)]
    assert len(prefixes.by_key) <= 4
    assert (6, 300, 600) == (
        prefixes.by_key[b"\x05"].num_requests,
        prefixes.by_key[b"\x05"].host_tokens,
        prefixes.by_key[b"\x05"].served_tokens,
    )

    ledger, told = Ledger(), []
    ledger.on_account = told.append
    for number in range(MOST_ACCOUNTS + 2):
        ledger.enter(Draft(0, 0).close(str(number), 1.0, 0, prompt_tokens=1))
    assert (MOST_ACCOUNTS, "2") == (len(ledger.recent), ledger.recent[0].request_id)
    assert MOST_ACCOUNTS + 2 == len(told)
