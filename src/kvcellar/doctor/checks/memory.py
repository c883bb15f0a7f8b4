"""Whether host memory fits this machine, all ranks and replicas together."""

from collections.abc import Iterator

from kvcellar.config import rank_bytes
from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, note, ok, warning
from kvcellar.layout.units import format_bytes
from kvcellar.tiers.machine import MachineMemory


def find_memory(facts: Facts) -> Iterator[Finding]:
    """The size asked for against the machine, its control group, and what is free."""
    memory = facts.machine.memory
    asked = local_host_bytes(facts)
    if asked is None:
        yield ok(_words(memory))
        return
    needed = f"host memory of {format_bytes(asked)} on this machine"
    for there, where in _hard_limits(memory):
        if asked > there:
            yield error(
                f"{needed} is more than {where}, {format_bytes(there)}",
                "the connector refuses it, or the kernel ends the server later",
                f"lower host_memory so that this machine holds at most that; "
                f"{_per_rank(facts)}",
            )
            return
    for there, where in _now(memory):
        if asked > there:
            yield warning(
                f"{needed} is more than {where} now, {format_bytes(there)}",
                "the connector checks this at its start, minutes from now, and refuses",
                "free memory first or lower host_memory",
            )
            return
    yield ok(f"{needed} fits: {_words(memory)}")


def find_control_group(facts: Facts) -> Iterator[Finding]:
    """A control group's limit that is smaller than the machine."""
    memory = facts.machine.memory
    if memory.limit_bytes is None or memory.limit_bytes >= memory.total_bytes:
        yield ok("no control group limits memory below the machine's")
        return
    yield note(
        f"a control group allows {format_bytes(memory.limit_bytes)} of the machine's "
        f"{format_bytes(memory.total_bytes)}",
        "host memory counts against it and is never reclaimed: past it, the container "
        "is killed",
        "size the container for the weights' loading plus all of host_memory",
    )


def local_host_bytes(facts: Facts) -> int | None:
    """Host memory on this machine, of all ranks and replicas; None where unknown."""
    configuration = facts.configuration
    if configuration is None or configuration.settings is None:
        return None
    share = rank_bytes(configuration.settings, configuration.num_ranks)
    return share * configuration.num_local_ranks


def _per_rank(facts: Facts) -> str:
    assert facts.configuration is not None
    num_ranks = facts.configuration.num_local_ranks
    return f"it is the sum over {num_ranks} rank(s) here"


def _hard_limits(memory: MachineMemory) -> Iterator[tuple[int, str]]:
    yield memory.total_bytes, "the memory of this machine"
    if memory.limit_bytes is not None:
        yield memory.limit_bytes, "the memory limit of the control group"


def _now(memory: MachineMemory) -> Iterator[tuple[int, str]]:
    yield memory.available_bytes, "what is available"
    if memory.below_limit_bytes is not None:
        yield memory.below_limit_bytes, "what is left under the control group's limit"


def _words(memory: MachineMemory) -> str:
    words = (
        f"{format_bytes(memory.total_bytes)} of memory, "
        f"{format_bytes(memory.available_bytes)} available"
    )
    if memory.limit_bytes is not None:
        words += f", limit {format_bytes(memory.limit_bytes)}"
    return words


CHECKS = (
    Check("memory", "does host memory fit this machine?", find_memory, refuses=True),
    Check("control-group", "does a container limit memory?", find_control_group),
)
