"""What each panel says, word for word."""

import pytest
from status_answers import answer, engine, followed, tokens

from kvcellar.monitor.make_view import Wish, make_view
from kvcellar.monitor.top.panels.copies import copies_panel
from kvcellar.monitor.top.panels.engines import engines_panel
from kvcellar.monitor.top.panels.memory import memory_panel
from kvcellar.monitor.top.panels.misses import misses_panel
from kvcellar.monitor.top.panels.prefixes import prefixes_panel
from kvcellar.monitor.top.panels.sources import sources_panel
from kvcellar.monitor.top.spans import plain

MIB = 2**20
HOST = {
    "capacity_bytes": 100 * MIB,
    "used_bytes": 60 * MIB,
    "chunks": 20,
    "checkpoints": 4,
    "pinned_chunks": 3,
    "leased_bytes": 5 * MIB,
    "leases": 1,
}
FIELDS = {
    "tiers": {"host": HOST, "device": {"blocks": 200, "free_blocks": 150}},
    "capacity": {"chunk_bytes": 2 * MIB},
    "tenants": {
        "tenants": 2,
        "most_bytes": 50 * MIB,
        "fullest": [{"name": "red", "used_bytes": 40 * MIB}],
    },
    "copies": {"load": {"jobs": 2}},
    "counters": {
        "kvcellar_measured_load_bytes_per_second": 3 * 2**30,
        "kvcellar_measured_prefill_tokens_per_second": 100,
    },
    "prefixes": [
        {
            "key": "0123456789ab",
            "tokens": 480,
            "requests": 3,
            "served_tokens": 1440,
            "host_tokens": 360,
            "weight": 1440,
        },
        {"key": "ff", "tokens": 9, "requests": 1, "served_tokens": 9, "weight": 9},
    ],
}
TOTALS = tokens(
    400,
    200,
    400,
    requests=20,
    evicted_chunks=50,
    unused_chunks=10,
    load_bytes=20 * MIB,
    load_jobs=4,
    load_seconds=0.5,
    failed_store_jobs=1,
    chosen_loads=4,
    cheap_recomputes=2,
    short_loads=1,
    missed_tokens_never_seen=200,
    missed_tokens_evicted=100,
    missed_tokens_storing=60,
    missed_tokens_last_boundary=40,
)


@pytest.fixture
def view():
    """Ten seconds of a server that was given everything to say."""
    first, second = engine(10, tokens(), **FIELDS), engine(20, TOTALS, **FIELDS)
    return make_view(followed(answer(first), answer(second)), Wish(num_slots=20), 1.5)


def lines(panel):
    return [plain(one).rstrip() for one in panel.lines]


def test_sources(view):
    """Shares of the window, then slot by slot, then the load."""
    panel = sources_panel(view, 60, 5, has_colour=False)
    assert "Prompt tokens, last 10 s (of 60 s)" == panel.title
    assert "100 tokens/s · 2 requests/s" == panel.figure
    assert [
        "60% served  ███████████████████▓▓▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░░░░░",
        "█ device 40% 400  ▓ host memory 20% 200  ░ computed 40% 400",
        "                 ░░",
        "                 ██",
        "                 ██",
    ] == lines(panel)


def test_memory(view):
    """What is held, what leaves, the device, what is kept, who fills most."""
    panel = memory_panel(view, 38, 9, has_colour=False)
    assert ("Host memory", "60% of 100 MiB") == (panel.title, panel.figure)
    assert [
        "host    ████████████▓▓▓▓▓▓············",
        "█ chunks            20  40.0 MiB",
        "▓ checkpoints        4  20.0 MiB",
        "evicted 5/s, 20% never loaded",
        "device  █████·············  25% in use",
        "pinned 3 chunks, 5.00 MiB leased",
        "tenants 2, red at 80% of its share",
    ] == lines(panel)
    assert 4 == len(memory_panel(view, 38, 4, has_colour=False).lines)


@pytest.mark.parametrize(("number", "words"), [(0, "0 chunks"), (1, "1 chunk")])
def test_one_pinned_chunk_is_no_chunks(number, words):
    """The noun goes with the number."""
    tiers = {"host": HOST | {"pinned_chunks": number, "leases": 0}}
    view = make_view(followed(answer(engine(1, tiers=tiers))), Wish(), 1.5)
    panel = memory_panel(view, 38, 9, has_colour=False)
    assert f"pinned {words}" in lines(panel)


def test_copies(view):
    """By direction; the choices and what they saved, at the measured rates."""
    assert [
        "      per second    each  now failed",
        "store        0 B       -    0      1",
        "load    2.00 MiB  125 ms    2      0",
        "loaded 4  cheaper to compute 2  too short 1",
        "saved about 2.0 s of prefill",
        "3.00 GiB/s load  100 tokens/s prefill",
    ] == lines(copies_panel(view, 60, 9))


def test_misses(view):
    """The costliest first; what does not fit is one row."""
    assert [
        "never seen before   ████████          50%    200",
        "held once, evicted  ████              25%    100",
        "still storing       ██▍               15%     60",
        "end of the prompt   █▋                10%     40",
    ] == lines(misses_panel(view, 48, 4))
    assert [
        "never seen before   ████████          50%    200",
        "3 other reasons     ████████          50%    200",
    ] == lines(misses_panel(view, 48, 2))


def test_prefixes(view):
    """Only those that served two requests; the share from host where there is room."""
    assert [
        "prefix    tokens requests  served  host",
        "01234567     480        3   1,440   25%",
    ] == lines(prefixes_panel(view, 40, 5))
    assert "  host" not in lines(prefixes_panel(view, 36, 5))[0]


def test_engines():
    """One row for each, and one for what has gone."""
    both = answer(engine(1, tokens()), engine(1, tokens(), number=1))
    left = answer(engine(3, tokens(3, 0, 1), num_requests=2))
    view = make_view(followed(both, left), Wish(), 1.5)
    assert [
        "engine   served  tokens/s  host  requests",
        "0           75%         2   40%         2",
        "1       no longer answers",
    ] == lines(engines_panel(view, 60, 5))
