"""From the engine's thread to HTTP: a real scheduler's status and its requests."""

import asyncio
import json
import os
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

from own_layouts import plan
from scripted import Scripted, prompt

from kvcellar.integrations.vllm import endpoint as endpoint_module
from kvcellar.integrations.vllm import status as status_module
from kvcellar.integrations.vllm.compat import engine_number
from kvcellar.integrations.vllm.endpoint import StatusEndpoint
from kvcellar.status.server import StatusServer
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack


@pytest.fixture
def run(short_folder, monkeypatch):
    """A scripted engine that answers on a socket in a folder of its own."""
    monkeypatch.setenv("KVCELLAR_RUN_DIR", str(short_folder / "run"))
    layout = plan(
        stack("FF", F=full(SMALL, 16)),
        extra_config={"host_memory": "64MiB", "status_socket": True},
        prompt_tokens=500,
    )
    scripted = Scripted(layout)
    yield scripted
    scripted.finish()
    scripted.close()
    scripted.side.close()
    assert [] == list((short_folder / "run").iterdir())


async def pass_on(scope, receive, send):
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b'"the application"'})


def get(path, method="GET", **scope):
    """What the middleware answers: status, and the body as JSON."""
    sent = []

    async def call():
        async def send(message):
            sent.append(message)

        whole = {"type": "http", "method": method, "path": path, **scope}
        await StatusEndpoint(pass_on)(whole, None, send)

    asyncio.run(call())
    body = sent[1]["body"]
    return sent[0]["status"], json.loads(body) if body else None


def test_status_over_http_is_the_planners_state(run):
    """Tiers, tokens, rates, settings, capacity and prefixes of a live engine."""
    run.ask(prompt(65))
    run.drop_device()
    run.ask(prompt(65))
    status, answer = get("/kvcellar/status")
    assert 200 == status
    (engine,) = answer["engines"]
    planner = run.planner
    assert engine["tiers"]["host"] == {
        "capacity_bytes": planner.slabs.geometry.arena_bytes,
        "used_bytes": planner.slabs.used_bytes,
        "claimed_bytes": planner.slabs.claimed_bytes,
        "chunks": 4,
        "checkpoints": 0,
        "pinned_chunks": 0,
        "leased_bytes": 0,
        "leases": 0,
    }
    assert {"device": 0, "host": 64, "computed": 66} == engine["prompt_tokens"]
    assert {"never_seen": 64, "last_boundary": 2} == engine["missed_tokens"]
    assert {"host": 1, "device": 0, "nothing": 1} == engine["requests_served_by"]
    (prefix,) = engine["prefixes"]
    assert (64, 1, 64, 64) == tuple(
        prefix[name] for name in ("tokens", "requests", "served_tokens", "host_tokens")
    )
    assert 64 * 2**20 == engine["settings"]["host_memory_bytes"]
    assert 16 == engine["layout"]["chunk_tokens"]
    assert engine["capacity"]["num_chunks"] > 1000
    assert engine["counters"]["kvcellar_host_chunks"] == 4
    assert engine["copies"]["load"]["copied_bytes"] > 0
    assert engine["process_id"] == os.getpid()
    assert {"prompt_tokens_host", "store_bytes"} <= engine["rates"]["per_second"].keys()


def test_status_has_what_a_live_view_needs(run):
    """Totals that rates are made of, the device's blocks, copies that ended, history
    when it is asked for and only then."""
    run.ask(prompt(65))
    run.drop_device()
    run.ask(prompt(65))
    ((engine,),) = get("/kvcellar/status")[1].values()
    totals = engine["totals"]
    assert (0, 64, 66) == tuple(
        totals[f"prompt_tokens_{source}"] for source in ("device", "host", "computed")
    )
    assert (64, 2) == (
        totals["missed_tokens_never_seen"],
        totals["missed_tokens_last_boundary"],
    )
    assert totals["store_jobs"] == engine["copies"]["store"]["ended_jobs"] > 0
    assert (1, 0) == (totals["load_jobs"], totals["failed_load_jobs"])
    assert totals["load_seconds"] > 0
    device = engine["tiers"]["device"]
    assert 0 < device["free_blocks"] <= device["blocks"]
    assert {"tenants": 0, "most_bytes": None, "fullest": []} == engine["tenants"]
    assert "history" not in engine
    ((engine,),) = get("/kvcellar/status", query_string=b"history=1")[1].values()
    assert all(m["uptime_seconds"] >= 0 for m in engine["history"])
    assert engine["history"][0]["totals"].keys() <= totals.keys()


def test_engines_of_one_server_have_numbers_of_their_own():
    """A dense model's data-parallel engines have rank 0 each, and an index."""
    parallel = SimpleNamespace(data_parallel_rank=0, data_parallel_index=1)
    assert 1 == engine_number(SimpleNamespace(parallel_config=parallel))
    alone = SimpleNamespace(data_parallel_rank=0)
    assert 0 == engine_number(SimpleNamespace(parallel_config=alone))


def test_why_over_http(run):
    """One request's account, by its id; an unknown id is not found."""
    answer = run.ask(prompt(65))
    status, found = get(f"/kvcellar/why/{answer.request_id}")
    (account,) = found["accounts"]
    assert (200, 65) == (status, account["prompt_tokens"])
    assert [64, 1] == [s["end_token"] - s["first_token"] for s in account["misses"]]
    status, found = get("/kvcellar/why/nobody")
    assert 404 == status
    assert "'nobody'" in found["error"]


def test_other_paths_and_methods_are_the_applications(run):
    """Nothing else is touched; behind a proxy's root path ours are still found."""
    for path in ("/v1/models", "/kvcellar", "/kvcellar/why/", "/kvcellar/status/x"):
        assert (299, "the application") == get(path)
    assert (299, "the application") == get("/kvcellar/status", method="POST")
    assert 200 == get("/api/kvcellar/status", root_path="/api")[0]
    assert (200, None) == get("/kvcellar/status", method="HEAD")
    assert (299, "the application") == get("/kvcellar/status", type="websocket")


def test_without_an_engine_the_answer_says_so(short_folder, monkeypatch):
    """No socket, or one that does not answer: 503 and a sentence."""
    monkeypatch.setenv("KVCELLAR_RUN_DIR", str(short_folder / "run"))
    status, answer = get("/kvcellar/status")
    assert 503 == status
    assert "no engine of this server" in answer["error"]
    (short_folder / "run").mkdir(mode=0o700)
    (short_folder / "run" / f"{os.getpid()}-1-0.sock").touch()
    status, answer = get("/kvcellar/status")
    assert 503 == status
    assert "does not answer, it has ended; the server's log" in answer["error"]


def test_an_engine_that_hangs_is_given_up(short_folder, monkeypatch):
    """The web server waits for an engine so long and no longer."""
    monkeypatch.setenv("KVCELLAR_RUN_DIR", str(short_folder / "run"))
    monkeypatch.setattr(endpoint_module, "_ENGINE_SECONDS", 0.05)
    release = threading.Event()

    def hang(question):
        release.wait(10)
        return {}

    server = StatusServer(short_folder / "run", hang, lambda: None)
    try:
        status, answer = get("/kvcellar/status")
        assert 503 == status
        assert "does not answer, silent for 0.05 s" in answer["error"]
    finally:
        release.set()
        server.close()


def test_an_engine_that_always_changes_is_too_busy(run, monkeypatch):
    """A state that never holds still is not shown torn; why needs no still state."""
    monkeypatch.setattr(status_module, "read_steadily", lambda number, read: None)
    answer = run.ask(prompt(65))
    assert 503 == get("/kvcellar/status")[0]
    assert 200 == get(f"/kvcellar/why/{answer.request_id}")[0]


def test_a_socket_that_cannot_be_had_is_a_warning(short_folder, monkeypatch, caplog):
    """The engine starts without it."""
    (short_folder / "file").touch()
    monkeypatch.setenv("KVCELLAR_RUN_DIR", str(short_folder / "file"))
    warnings = []
    monkeypatch.setattr(
        status_module.logger, "warning", lambda text, *values: warnings.append(values)
    )
    layout = plan(
        stack("FF", F=full(SMALL, 16)),
        extra_config={"host_memory": "64MiB", "status_socket": True},
        prompt_tokens=100,
    )
    scripted = Scripted(layout)
    scripted.ask(prompt(65))
    scripted.finish()
    scripted.close()
    scripted.side.close()
    assert 1 == len(warnings)
