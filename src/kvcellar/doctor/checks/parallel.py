"""Ranks, replicas and nodes: what a size means for each."""

from collections.abc import Iterator

from kvcellar.config import rank_bytes
from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, note, ok
from kvcellar.layout.units import format_bytes


def find_shares(facts: Facts) -> Iterator[Finding]:
    """The multiplication behind host memory, spelled out."""
    configuration = facts.configuration
    if configuration is None or configuration.settings is None:
        return
    share = rank_bytes(configuration.settings, configuration.num_ranks)
    server = share * configuration.num_ranks
    words = (
        f"{format_bytes(share)} per rank x TP {configuration.tensor_parallel} x PP "
        f"{configuration.pipeline_parallel} = {format_bytes(server)} of host memory"
    )
    num_sharing = facts.sizing.num_sharing if facts.sizing is not None else 1
    if num_sharing > 1:
        words += f", of which each {num_sharing} ranks share theirs"
    replicas = configuration.num_replicas
    if replicas > 1:
        words += f" x DP {replicas} = {format_bytes(server * replicas)} in all"
    if configuration.num_ranks * replicas == 1:
        yield ok(words)
        return
    meaning = (
        "a rank's own"
        if configuration.settings.host_memory_bytes_per_rank is not None
        else "the sum over the ranks of one replica"
    )
    why = f"the size given is {meaning}"
    if replicas > 1:
        why += "; each replica has its own, and they share nothing"
    yield note(words, why, "host_memory_per_rank gives one rank's size instead")


def find_nodes(facts: Facts) -> Iterator[Finding]:
    """Several machines behind one server."""
    configuration = facts.configuration
    if configuration is None:
        return
    nodes, ranks = configuration.num_nodes, configuration.num_ranks
    if nodes == 1:
        yield ok("one node")
    elif ranks % nodes:
        yield error(
            f"--nnodes={nodes} does not divide the {ranks} ranks",
            "each node holds the same number of ranks",
            "make tensor times pipeline parallel size a multiple of it",
        )
    else:
        yield note(
            f"{ranks} ranks over {nodes} nodes, {ranks // nodes} on each",
            "host memory lies beside its rank, so each node holds its ranks' share "
            "and no more; nothing is shared between nodes",
            "run doctor on every node: memory is checked only where it runs",
        )


def find_context_parallel(facts: Facts) -> Iterator[Finding]:
    """Ways to split a prompt that this release does not serve."""
    configuration = facts.configuration
    if configuration is None or configuration.transfer.ours is None:
        return
    decode = configuration.number("--decode-context-parallel-size") or 1
    prefill = configuration.number("--prefill-context-parallel-size") or 1
    if decode > 1:
        yield error(
            f"--decode-context-parallel-size={decode} cannot be used",
            "blocks are then spread over ranks in a way that this release does not "
            "serve",
            "leave it out, or set it to 1",
        )
    if prefill > 1:
        yield error(
            f"--prefill-context-parallel-size={prefill} cannot be used",
            "nobody has shown that its blocks come back right",
            "leave it out, or set it to 1",
        )
    if decode == prefill == 1:
        yield ok("no context parallelism")


CHECKS = (
    Check("shares", "what does a size mean per rank and in all?", find_shares),
    Check("nodes", "does a server span machines?", find_nodes),
    Check(
        "context-parallel",
        "is a prompt split over ranks?",
        find_context_parallel,
        refuses=True,
    ),
)
