"""Asking a running server, and what its counters tell."""

import socket

import pytest
from doctor_facts import GIB, facts_of, findings, is_fine, only
from metrics_server import serving, vllm_pages

from kvcellar.demo.metrics import parse_metrics
from kvcellar.doctor.checks import misses, running, traffic
from kvcellar.doctor.server import Server, read_server
from kvcellar.metrics import METRICS

OF_SERVERS = (*running.CHECKS, *traffic.CHECKS, *misses.CHECKS)
INFO = (
    'vllm:cache_config_info{{enable_prefix_caching="{on}",num_gpu_blocks="512",'
    'cache_hit_alignment_tokens="{unit}",prefix_caching_hash_algo="sha256"}} 1.0\n'
)


EMPTY = {"host_capacity_bytes": GIB, "host_used_bytes": 2**20}


def metrics_text(
    counters=(), *, on="True", unit=32, tokens=(0, 0, 0), preemptions=0, engine=0
):
    """A server's exposition.

    Args:
        counters: numbers by key of one of kvcellar's series, without the prefix.
    """
    names = ("computed", "device", "host")
    counters = EMPTY | dict(counters)
    for name, number in zip(names, tokens, strict=True):
        counters[f'prompt_tokens_total{{source="{name}"}}'] = number
    lines = [f'vllm:num_preemptions_total{{engine="{engine}"}} {preemptions}']
    for key, value in counters.items():
        name, _, label = key.partition("{")
        own = f"{label.rstrip('}')}," if label else ""
        lines.append(f'kvcellar_{name}{{{own}engine="{engine}"}} {value}')
    return INFO.format(on=on, unit=unit) + "\n".join(lines) + "\n"


def told(counters=(), **stated):
    """Facts of a server with these metrics."""
    samples = parse_metrics(metrics_text(counters, **stated))
    return facts_of(server=Server("u", "", "0.32.0", {"m": 4096}, samples))


def test_a_real_server_is_read_over_http():
    """Version, models and metrics; a path behind the port is cut off."""
    pages = vllm_pages(metrics_text({'stores_total{kind="chunk"}': 3}))
    with serving(pages) as url:
        for given in (url, f"{url}/v1", url.removeprefix("http://")):
            server = read_server(given)
            assert (url, "", "0.32.0") == (server.url, server.problem, server.version)
            assert {"m": 4096} == server.max_tokens_by_model
            assert 3 == server.count("kvcellar_stores_total")
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
    assert [] == [f for check in OF_SERVERS[1:] for f in check.find(facts)]


def test_a_server_without_metrics_is_an_error():
    """A router, for instance: pages that are missing are no failure by themselves."""
    with serving({"/health": ""}) as url:
        server = read_server(url)
    assert "has no /metrics" in only("server", facts_of(server=server), "error").what
    assert ("", {}) == (server.version, server.max_tokens_by_model)


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


PROMPTS = "vllm:request_prompt_tokens_count 4\nvllm:request_prompt_tokens_sum 120\n"


def test_prompts_shorter_than_a_hit():
    """The mean prompt against the engine's own granularity."""
    samples = parse_metrics(metrics_text() + PROMPTS)
    facts = facts_of(server=Server("u", samples=samples))
    warned = only("server-settings", facts, "warning")
    assert "multiples of 32 tokens, its prompts 30 tokens long" in warned.what


def test_a_servers_mean_prompt_is_the_usual_one_unless_stated():
    """So that sizes are those of what it really serves."""
    server = Server("u", samples=parse_metrics(PROMPTS))
    assert 30 == facts_of("llama-3.1-8b", server=server).configuration.prompt_tokens
    stated = facts_of("llama-3.1-8b", server=server, prompt_tokens=512)
    assert 512 == stated.configuration.prompt_tokens
    assert Server("u", samples=parse_metrics("")).mean_prompt_tokens is None


def test_an_untested_server_is_told():
    """The server's own vLLM counts, not the one installed here."""
    facts = facts_of(server=Server("u", version="0.34.1"))
    assert (
        "the server's vllm is version 0.34.1"
        in only("server-version", facts, "warning").what
    )


def test_sums_of_several_engines_are_named_as_sums():
    """Of a data-parallel server; what its engines do not tell is left out."""
    text = metrics_text(unit="None") + metrics_text(unit="None", engine=1)
    server = Server("u", samples=parse_metrics(text))
    facts = facts_of(server=server)
    (used,) = findings("server-connector", facts)
    assert "2.00 MiB of 2.00 GiB host memory used, 2 engines together" == used.what
    (settings,) = findings("server-settings", facts)
    assert settings.what == (
        "prefix caching is on (sha256), 512 device blocks, 2 engines together"
    )
    (alone,) = findings("server-connector", told())
    assert "1.00 MiB of 1.00 GiB host memory used" == alone.what
    assert 0 == Server("u").num_engines


def test_preemptions_are_told():
    """The device is too small for what runs."""
    assert "3 preemptions" == only("preemptions", told(preemptions=3), "warning").what
    assert is_fine("preemptions", told())


MANY = 1_000_000
STORED = 'transfer_bytes_sum{direction="store"}'
STORES = 'stores_total{kind="chunk"}'
EVICTIONS = 'evictions_total{kind="chunk"}'
UNUSED = "unused_evictions_total"
NO_ROOM = 'skipped_stores_total{reason="no_room"}'
LOST = 'skipped_stores_total{reason="lost"}'


def missed(reason):
    return f'missed_tokens_total{{reason="{reason}"}}'


def test_nothing_stored():
    """A warning only once enough was computed."""
    silent = told(tokens=(MANY, 0, 0))
    assert "nothing was stored" in only("stores", silent, "warning").what
    assert is_fine("stores", told(tokens=(100, 0, 0)))
    assert is_fine("stores", told({STORES: 5}, tokens=(MANY, 0, 0)))


@pytest.mark.parametrize(
    ("tokens", "evicted", "severity", "words"),
    [
        ((MANY, 0, 0), 7, "warning", "hardly any prompt returns"),
        ((10, MANY, 0), 0, "note", "device hits"),
        ((MANY, MANY // 2, 0), 0, "note", "device hits"),
        ((MANY, MANY // 20, 0), 0, "warning", "hardly any prompt began like"),
        ((MANY, 0, 0), 0, "warning", "hardly any prompt began like"),
    ],
)
def test_stored_but_never_loaded(tokens, evicted, severity, words):
    """Three causes, told apart: evicted, still on the device, never the same."""
    facts = told({STORED: 2**30, EVICTIONS: evicted}, tokens=tokens)
    finding = only("loads", facts, severity)
    assert words in finding.why
    assert finding.what.startswith("1.00 GiB stored, nothing loaded")


def test_loads_are_fine_where_some_are_served():
    """Also while nothing much has happened."""
    assert is_fine("loads", told({STORED: 1}, tokens=(MANY, 0, 50)))
    assert is_fine("loads", told({STORED: 1}, tokens=(100, 0, 0)))


@pytest.mark.parametrize(
    ("check", "counters", "words"),
    [
        ("room", {NO_ROOM: 4}, "4 chunks or checkpoints found all of host memory"),
        (
            "room",
            {"pinned_chunks": 95, "host_chunks": 100, "host_used_bytes": GIB},
            "95 of 100 chunks are pinned now",
        ),
        ("copies", {'failed_jobs_total{direction="load"}': 2}, "2 copies failed"),
        ("copies", {"refused_loads_total": 2}, "2 loads could not be planned"),
        ("lost", {LOST: 9, STORES: 91}, "9 chunks left"),
        ("churn", {EVICTIONS: 1000, UNUSED: 800}, "800 of 1000 chunks evicted"),
    ],
)
def test_counters_that_tell_of_trouble(check, counters, words):
    """A full pool, failed copies, late lazy stores, evictions of what never loaded."""
    assert words in only(check, told(counters), "warning").what
    assert is_fine(check, told())


@pytest.mark.parametrize("check", ["loads", "churn"])
@pytest.mark.parametrize(
    ("returned", "why", "remedy"),
    [
        (MANY // 10, "prompts do return, but later", "more host_memory"),
        (0, "hardly any prompt returns", "second-touch"),
    ],
)
def test_never_loaded_for_one_of_two_reasons(check, returned, why, remedy):
    """What was evicted is missed, or not; both checks give the one fitting remedy."""
    counters = {STORED: 2**30, EVICTIONS: 1000, UNUSED: 1000}
    counters[missed("evicted")] = returned
    finding = only(check, told(counters, tokens=(MANY, 0, 0)), "warning")
    assert why in finding.why
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("check", "counters"),
    [
        ("lost", {LOST: 1, STORES: 199}),
        ("churn", {EVICTIONS: 50, UNUSED: 50}),
        ("churn", {EVICTIONS: 1000, UNUSED: 400}),
        ("room", {"pinned_chunks": 95, "host_chunks": 100}),
    ],
)
def test_a_little_is_fine(check, counters):
    """A lost chunk, a few evictions, or pins in a pool that has room are no trouble."""
    assert is_fine(check, told(counters))


def test_the_costliest_reasons_for_misses_come_first():
    """With their meaning and what to do; losses warn, choices are notes."""
    counters = {missed("evicted"): 300, missed("answer"): 90, missed("lost"): 10}
    facts = told(
        {key: 100 * value for key, value in counters.items()},
        tokens=(90_000, 10_000, 0),
    )
    first, second = findings("misses", facts)
    assert ("warning", "note") == (first.severity.word, second.severity.word)
    assert first.what.startswith("30% of all prompt tokens were computed: evicted")
    assert "make room" in first.why
    assert "store_decoded" in second.remedy


def test_misses_that_must_be_are_fine():
    """New prompts and the last tokens of a prompt are nobody's fault."""
    counters = {missed("never_seen"): 9 * MANY, missed("last_boundary"): MANY}
    assert is_fine("misses", told(counters, tokens=(10 * MANY, 0, 0)))
    assert is_fine("misses", told({missed("evicted"): 100}, tokens=(200, 0, 0)))


def test_every_series_looked_at_exists(monkeypatch):
    """Names and labels are those of the one table: a renamed one is noticed here."""
    asked = set()

    def total(self, name, **labels):
        asked.update((name, label, value) for label, value in labels.items())
        asked.add((name, "", ""))
        return 1_000_000

    monkeypatch.setattr(Server, "total", total)
    facts = told(tokens=(MANY, 0, 0))
    for check in OF_SERVERS:
        list(check.find(facts))
    ours = {entry for entry in asked if entry[0].startswith("kvcellar_")}
    known = {name for metric in METRICS.values() for name in metric.exported_names()}
    assert len(ours) >= 20
    assert set() == {name for name, _, _ in ours} - known
    for name, label, value in ours:
        metric = METRICS.get(name) or METRICS[name.rpartition("_")[0]]
        assert not label or (label == metric.label and value in metric.values)


def test_without_a_server_nothing_is_said_of_one():
    """The checks of running servers do not arise."""
    assert [] == [f for check in OF_SERVERS for f in check.find(facts_of())]


def test_two_engines_are_added_up():
    """Replicas export series of their own."""
    failed = 'failed_jobs_total{direction="store"}'
    text = metrics_text({failed: 1}) + metrics_text({failed: 2}, engine=1)
    facts = facts_of(server=Server("u", samples=parse_metrics(text)))
    assert "3 copies" in findings("copies", facts)[0].what
