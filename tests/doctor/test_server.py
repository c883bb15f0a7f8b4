"""Asking a running server, and what its counters tell."""

import socket

import pytest
from doctor_facts import GIB, facts_of, findings, is_fine, only
from metrics_server import serving, vllm_pages

from kvcellar.demo.metrics import parse_metrics
from kvcellar.doctor.checks import running, traffic
from kvcellar.doctor.server import Server, read_server
from kvcellar.errors import ConfigError
from kvcellar.metrics import METRICS

INFO = (
    'vllm:cache_config_info{{enable_prefix_caching="{on}",num_gpu_blocks="512",'
    'cache_hit_alignment_tokens="{unit}",prefix_caching_hash_algo="sha256"}} 1.0\n'
)


def metrics_text(*, on="True", unit=32, tokens=(0, 0, 0), preemptions=0, **ours):
    """A server's exposition; ``ours`` are kvcellar's counters without prefix."""
    computed, device, host = tokens
    by_source = "vllm:prompt_tokens_by_source_total"
    lines = [
        f'{by_source}{{source="local_compute"}} {computed}',
        f'{by_source}{{source="local_cache_hit"}} {device}',
        f'{by_source}{{source="external_kv_transfer"}} {host}',
        f'vllm:num_preemptions_total{{engine="0"}} {preemptions}',
    ]
    ours = {"host_capacity_bytes": GIB, "host_used_bytes": 2**20} | ours
    lines += [f'kvcellar_{name}{{engine="0"}} {value}' for name, value in ours.items()]
    return INFO.format(on=on, unit=unit) + "\n".join(lines) + "\n"


def told(**stated):
    """Facts of a server with these metrics."""
    server = Server(
        "u", "", "0.32.0", {"m": 4096}, parse_metrics(metrics_text(**stated))
    )
    return facts_of(server=server)


def test_a_real_server_is_read_over_http():
    """Version, models and metrics; a path behind the port is cut off."""
    pages = vllm_pages(metrics_text(stored_chunks_total=3))
    with serving(pages) as url:
        for given in (url, f"{url}/v1", url.removeprefix("http://")):
            server = read_server(given)
            assert (url, "", "0.32.0") == (server.url, server.problem, server.version)
            assert {"m": 4096} == server.max_tokens_by_model
            assert 3 == server.count("kvcellar_stored_chunks_total")
            assert "512" == server.cache_settings["num_gpu_blocks"]
    facts = facts_of(server=server)
    for check in ("server", "server-version", "server-connector", "server-settings"):
        assert is_fine(check, facts), check


def test_nobody_answering_is_an_error():
    """The address and the reason are told, and no other check of it says a word."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    facts = facts_of(server=read_server(url))
    assert url in only("server", facts, "error").what
    others = [*running.CHECKS[1:], *traffic.CHECKS]
    assert [] == [f for check in others for f in check.find(facts)]


def test_a_server_without_metrics_is_an_error():
    """A router, for instance: pages that are missing are no failure by themselves."""
    with serving({"/health": ""}) as url:
        server = read_server(url)
    assert "has no /metrics" in only("server", facts_of(server=server), "error").what
    assert ("", {}) == (server.version, server.max_tokens_by_model)


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:99999", "::"])
def test_an_address_that_is_none_is_refused(url):
    """The value and how to write one."""
    with pytest.raises(ConfigError, match="is no address; write it like http://127"):
        read_server(url)


def test_a_server_without_kvcellar_is_an_error():
    """Its metrics lack ours, so the checks that count stay silent."""
    text = "vllm:num_preemptions_total 0\n"
    facts = facts_of(server=Server("u", samples=parse_metrics(text)))
    assert "no metric of kvcellar" in only("server-connector", facts, "error").what
    assert [] == [f for check in traffic.CHECKS for f in check.find(facts)]


def test_running_settings_that_serve_nothing():
    """Prefix caching off, or hits coarser than any request: nothing can be found."""
    off = only("server-settings", told(on="False"), "error")
    assert "prefix caching is off" in off.what
    coarse = only("server-settings", told(unit=4096), "error")
    assert "multiples of 4096" in coarse.what


def test_an_untested_server_is_told():
    """The server's own vLLM counts, not the one installed here."""
    facts = facts_of(server=Server("u", version="0.34.1"))
    assert (
        "the server's vllm is version 0.34.1"
        in only("server-version", facts, "warning").what
    )


def test_preemptions_are_told():
    """The device is too small for what runs."""
    assert "3 preemptions" == only("preemptions", told(preemptions=3), "warning").what
    assert is_fine("preemptions", told())


MANY = 1_000_000


def test_nothing_stored():
    """A warning only once enough was computed."""
    silent = told(tokens=(MANY, 0, 0))
    assert "nothing was stored" in only("stores", silent, "warning").what
    assert is_fine("stores", told(tokens=(100, 0, 0)))
    assert is_fine("stores", told(tokens=(MANY, 0, 0), stored_chunks_total=5))


@pytest.mark.parametrize(
    ("tokens", "evicted", "severity", "words"),
    [
        ((MANY, 0, 0), 7, "warning", "too small"),
        ((10, MANY, 0), 0, "note", "device hits"),
        ((MANY, 0, 0), 0, "warning", "no prompt began like an earlier one"),
    ],
)
def test_stored_but_never_loaded(tokens, evicted, severity, words):
    """Three causes, told apart: evicted, still on the device, never the same."""
    facts = told(tokens=tokens, stored_bytes_total=2**30, evicted_chunks_total=evicted)
    assert words in only("loads", facts, severity).why


def test_loads_are_fine_where_some_are_served():
    """Also while nothing much has happened."""
    served = told(tokens=(MANY, 0, 50), stored_bytes_total=1, loaded_tokens_total=50)
    assert is_fine("loads", served)
    assert is_fine("loads", told(tokens=(100, 0, 0), stored_bytes_total=1))


@pytest.mark.parametrize(
    ("check", "counters", "words"),
    [
        ("room", {"stores_without_room_total": 4}, "4 chunks or checkpoints"),
        ("copies", {"failed_jobs_total": 2}, "2 copies failed"),
        ("copies", {"refused_loads_total": 2}, "2 loads could not be planned"),
        ("lost", {"lost_chunks_total": 9, "stored_chunks_total": 91}, "9 chunks left"),
        (
            "churn",
            {
                "stored_chunks_total": 10,
                "evicted_chunks_total": 8,
                "stored_bytes_total": 1000,
                "loaded_bytes_total": 10,
            },
            "8 of 10 chunks were evicted",
        ),
    ],
)
def test_counters_that_tell_of_trouble(check, counters, words):
    """A full pool, failed copies, late lazy stores, eviction before use."""
    assert words in only(check, told(**counters), "warning").what
    assert is_fine(check, told())


def test_a_little_loss_is_fine():
    """One lost chunk of two hundred is nothing to tell."""
    assert is_fine("lost", told(lost_chunks_total=1, stored_chunks_total=199))


def test_every_counter_looked_at_exists(monkeypatch):
    """Names are those of the one table of metrics: a renamed one is noticed here."""
    asked = set()

    def total(self, name, **labels):
        asked.add(name)
        return 1

    monkeypatch.setattr(Server, "total", total)
    facts = told(tokens=(MANY, 0, 0))
    for check in (*running.CHECKS, *traffic.CHECKS):
        list(check.find(facts))
    ours = {name for name in asked if name.startswith("kvcellar_")}
    assert len(ours) >= 9
    assert set() == ours - set(METRICS)


def test_without_a_server_nothing_is_said_of_one():
    """The checks of running servers do not arise."""
    others = [*running.CHECKS, *traffic.CHECKS]
    assert [] == [f for check in others for f in check.find(facts_of())]


def test_two_engines_are_added_up():
    """Replicas export series of their own."""
    text = (
        metrics_text(failed_jobs_total=1) + 'kvcellar_failed_jobs_total{engine="1"} 2\n'
    )
    facts = facts_of(server=Server("u", samples=parse_metrics(text)))
    assert "3 copies" in findings("copies", facts)[0].what
