"""A running server: does it answer, and is kvcellar on in it?"""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.checks.software import engine_findings
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, ok, warning
from kvcellar.doctor.server import Server
from kvcellar.layout.units import format_bytes


def find_server(facts: Facts) -> Iterator[Finding]:
    """Whether it answers as a vLLM server does."""
    server = facts.server
    if server is None:
        return
    if server.problem:
        yield error(server.problem, "nothing can be said about it", server.remedy)
    elif server.samples is None:
        yield error(
            f"{server.url} has no /metrics",
            "what is stored, loaded and missed is told there",
            "give the address of the vLLM server itself, not of a router",
        )
    else:
        models = ", ".join(server.max_tokens_by_model) or "no model named"
        yield ok(f"{server.url} serves {models}")


def find_server_version(facts: Facts) -> Iterator[Finding]:
    """The server's own version, which need not be the one installed here."""
    server = facts.server
    if server is None or not server.version:
        return
    found = list(
        engine_findings(server.version, "the server's vllm", allows_untested=True)
    )
    yield from found or [ok(f"the server's vllm is {server.version}")]


def find_server_connector(facts: Facts) -> Iterator[Finding]:
    """Whether it exports our metrics, and so runs our connector."""
    server = facts.server
    if server is None or server.samples is None:
        return
    capacity = server.total("kvcellar_host_capacity_bytes")
    if capacity is None:
        yield error(
            "the server has no metric of kvcellar's",
            "it runs without kvcellar, or has not done a step yet",
            "send a request and ask again, or start it with kvcellar serve",
        )
        return
    used = server.count("kvcellar_host_used_bytes")
    yield ok(
        f"{format_bytes(used)} of {format_bytes(capacity)} host memory used"
        f"{_of_engines(server)}"
    )


def find_server_settings(facts: Facts) -> Iterator[Finding]:
    """The engine's cache settings as it runs, by its own words."""
    server = facts.server
    if server is None or not server.cache_settings:
        return
    told = server.cache_settings
    if told.get("enable_prefix_caching") == "False":
        yield error(
            "prefix caching is off in the running server",
            "no prompt is ever found again, on the device or in host memory",
            "start it without --no-enable-prefix-caching",
        )
        return
    alignment = told.get("cache_hit_alignment_tokens", "")
    longest = max(server.max_tokens_by_model.values(), default=0)
    if alignment.isdecimal() and 0 < longest <= int(alignment):
        yield error(
            f"the server's hits are multiples of {alignment} tokens",
            f"no request is longer than {longest}, so nothing can ever be served",
            "raise --max-model-len",
        )
        return
    usual = server.mean_prompt_tokens
    if usual is not None and alignment.isdecimal() and usual <= int(alignment):
        yield warning(
            f"the server's hits are multiples of {alignment} tokens, its prompts "
            f"{usual} tokens long on average",
            "a prompt no longer than that is never found again",
            "expect hits for longer prompts only, or let prompts share more",
        )
        return
    parts = [f"prefix caching is on ({told.get('prefix_caching_hash_algo', '?')})"]
    if alignment.isdecimal():  # several engines do not tell it
        parts.append(f"hits at multiples of {alignment} tokens")
    parts.append(f"{told.get('num_gpu_blocks', '?')} device blocks")
    yield ok(", ".join(parts) + _of_engines(server))


def _of_engines(server: Server) -> str:
    """That a figure is a sum, where it is."""
    several = server.num_engines
    return f", {several} engines together" if several > 1 else ""


def find_preemptions(facts: Facts) -> Iterator[Finding]:
    """Requests that lost their device blocks while they ran."""
    server = facts.server
    if server is None or server.samples is None:
        return
    count = server.count("vllm:num_preemptions_total")
    if not count:
        yield ok("no request was preempted")
        return
    yield warning(
        f"{count} preemption{'s' * (count != 1)}",
        "the device is too small for what runs at once; each one computes or loads its "
        "prompt again",
        "lower --max-num-seqs, or give the device more memory",
    )


CHECKS = (
    Check("server", "does the server answer?", find_server),
    Check("server-version", "is its vLLM a tested one?", find_server_version),
    Check("server-connector", "is kvcellar on in it?", find_server_connector),
    Check("server-settings", "can it find prompts at all?", find_server_settings),
    Check("preemptions", "is its device too small?", find_preemptions),
)
