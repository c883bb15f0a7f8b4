"""What a running server's counters say about stores, loads and evictions."""

from collections.abc import Iterator

from kvcellar.demo.metrics import TRANSFER_BYTES
from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, note, ok, warning
from kvcellar.doctor.server import Server
from kvcellar.layout.units import format_bytes

ENOUGH_TOKENS = 10_000
"""Prompt tokens before silence means something."""

_MANY_LOST = 0.01
_MANY_UNUSED = 0.5
_ENOUGH_EVICTIONS = 100
_NEARLY_ALL = 0.9
_PROMPT_TOKENS = "kvcellar_prompt_tokens_total"
_STORES = "kvcellar_stores_total"
_SKIPPED = "kvcellar_skipped_stores_total"
_EVICTIONS = "kvcellar_evictions_total"
_MISSED_TOKENS = "kvcellar_missed_tokens_total"
_MANY_RETURNED = 0.01  # of the computed tokens
_MANY_FOUND = 0.1  # of all prompt tokens: more than a common beginning's


def counting(facts: Facts) -> Server | None:
    """The server, if it counts for us."""
    server = facts.server
    return server if server is not None and server.has_kvcellar else None


def find_stores(facts: Facts) -> Iterator[Finding]:
    """Nothing stored, although prompts were computed."""
    server = counting(facts)
    if server is None:
        return
    chunks = server.count(_STORES, kind="chunk")
    points = server.count(_STORES, kind="checkpoint")
    computed = server.count(_PROMPT_TOKENS, source="computed")
    if chunks or points:
        yield ok(f"{chunks} chunks and {points} checkpoints were stored")
    elif computed < ENOUGH_TOKENS:
        yield ok(f"nothing stored yet; {computed} prompt tokens were computed")
    else:
        yield warning(
            f"{computed} prompt tokens were computed and nothing was stored",
            "prompts shorter than a chunk, max_store_tokens, second-touch admission or "
            "lazy mode on a device that is never full can do that",
            "compare the server's log of chunk sizes with your prompts",
        )


def find_loads(facts: Facts) -> Iterator[Finding]:
    """Much stored, nothing ever served from it."""
    server = counting(facts)
    if server is None:
        return
    stored = server.count(TRANSFER_BYTES, direction="store")
    device = server.count(_PROMPT_TOKENS, source="device")
    host = server.count(_PROMPT_TOKENS, source="host")
    total = server.count(_PROMPT_TOKENS)
    if host or not stored or total < ENOUGH_TOKENS:
        yield ok(f"{host} of {total} prompt tokens came from host memory")
    elif server.count(_EVICTIONS, kind="chunk"):
        yield warning(
            f"{format_bytes(stored)} stored, nothing loaded, and chunks are evicted",
            *_why_unused(server),
        )
    elif device > _MANY_FOUND * total:
        yield note(
            f"{format_bytes(stored)} stored, nothing loaded: the device still has it",
            f"{device} of {total} prompt tokens were device hits, so host memory is "
            "not needed yet",
        )
    else:
        yield warning(
            f"{format_bytes(stored)} stored, nothing loaded, nothing evicted",
            "hardly any prompt began like an earlier one: another salt, adapter or "
            "picture, or a changing text at the beginning such as the time",
            "put what changes last, and compare two prompts that should match",
        )


def find_room(facts: Facts) -> Iterator[Finding]:
    """A pool so full of pinned cells that nothing new fits."""
    server = counting(facts)
    if server is None:
        return
    refused = server.count(_SKIPPED, reason="no_room")
    pinned = server.count("kvcellar_pinned_chunks")
    held = server.count("kvcellar_host_chunks")
    capacity = server.count("kvcellar_host_capacity_bytes")
    is_full = server.count("kvcellar_host_used_bytes") >= _NEARLY_ALL * capacity
    if not refused and not (is_full and pinned >= _NEARLY_ALL * held):
        yield ok(f"every store found room; {pinned} of {held} chunks are pinned now")
        return
    yield warning(
        f"{refused} chunks or checkpoints found all of host memory pinned; {pinned} of "
        f"{held} chunks are pinned now",
        "running requests pin what they have stored, so a pool smaller than what runs "
        "at once takes nothing new",
        "give more host_memory, lower --max-num-seqs, or use mode lazy",
    )


def find_copies(facts: Facts) -> Iterator[Finding]:
    """Copies and loads that failed."""
    server = counting(facts)
    if server is None:
        return
    failed = server.count("kvcellar_failed_jobs_total")
    refused = server.count("kvcellar_refused_loads_total")
    if failed:
        yield warning(
            f"{failed} copies failed on a rank",
            "each cost a recompute; memory or a driver may be failing",
            "read the workers' log lines of kvcellar, and the kernel's log",
        )
    if refused:
        yield warning(
            f"{refused} loads could not be planned",
            "what had been promised was computed instead",
            "please report it, with the server's log at debug level",
        )
    if not failed and not refused:
        yield ok("no copy failed")


def find_lost(facts: Facts) -> Iterator[Finding]:
    """Lazy stores that came too late."""
    server = counting(facts)
    if server is None:
        return
    lost = server.count(_SKIPPED, reason="lost")
    stored = server.count(_STORES, kind="chunk")
    if lost <= _MANY_LOST * (lost + stored):
        yield ok(f"{lost} chunks were lost before they were stored")
        return
    yield warning(
        f"{lost} chunks left the device before they were stored, {stored} were stored",
        "lazy mode waits until the device is about to lose a chunk, and steps were "
        "faster than the copies",
        "use mode eager, or lower --max-num-batched-tokens",
    )


def find_churn(facts: Facts) -> Iterator[Finding]:
    """What is stored is evicted before it was ever loaded."""
    server = counting(facts)
    if server is None:
        return
    evicted = server.count(_EVICTIONS, kind="chunk")
    unused = server.count("kvcellar_unused_evictions_total")
    if evicted < _ENOUGH_EVICTIONS or unused < _MANY_UNUSED * evicted:
        yield ok(f"{evicted} chunks were evicted, {unused} of them never loaded")
        return
    yield warning(
        f"{unused} of {evicted} chunks evicted had never been loaded",
        *_why_unused(server),
    )


def _why_unused(server: Server) -> tuple[str, str]:
    """Why chunks go before they are loaded, and what to do: two opposite cases.

    Tokens computed because they had been evicted are those of prompts that did return,
    only too late. Without them, room for more prompts would serve nobody.
    """
    returned = server.count(_MISSED_TOKENS, reason="evicted")
    computed = server.count(_PROMPT_TOKENS, source="computed")
    if returned >= _MANY_RETURNED * computed > 0:
        return (
            f"prompts do return, but later: {returned} of {computed} computed tokens "
            "had been held and evicted",
            "give more host_memory; kvcellar replay says how much would help",
        )
    return (
        "hardly any prompt returns, so hardly any of what is stored is asked for",
        'try "admission": "second-touch", which stores what is asked for twice',
    )


CHECKS = (
    Check("stores", "is anything stored?", find_stores),
    Check("loads", "is what is stored ever loaded?", find_loads),
    Check("room", "is host memory full of pinned cells?", find_room),
    Check("copies", "do copies fail?", find_copies),
    Check("lost", "do lazy stores come in time?", find_lost),
    Check("churn", "is it evicted before it is loaded?", find_churn),
)
