"""Limits and habits of the operating system that a large host memory meets."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.checks.memory import local_host_bytes
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, note, ok, warning
from kvcellar.doctor.transfer import extra_of, name_of
from kvcellar.layout.units import format_bytes

_DOCKERS_DEFAULT_BYTES = 64 * 2**20
# Connectors that put a region of their own size below /dev/shm.
# Source: v1/kv_offload/cpu/shared_offload_region.py, vLLM 0.32.
_IN_SHARED_MEMORY = frozenset({"OffloadingConnector"})


def find_locked_memory(facts: Facts) -> Iterator[Finding]:
    """RLIMIT_MEMLOCK, where GPUs read host memory."""
    limit, asked = facts.machine.locked_limit_bytes, local_host_bytes(facts)
    if limit is None:
        yield ok("locked memory has no limit")
    elif not facts.machine.num_gpus or asked is None or asked <= limit:
        yield ok(f"locked memory is limited to {format_bytes(limit)}")
    else:
        yield warning(
            f"locked memory is limited to {format_bytes(limit)}, host memory takes "
            f"{format_bytes(asked)}",
            "copies to GPUs are fast only from pinned memory, and some drivers and all "
            "RDMA libraries count it against this limit",
            "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity, or docker "
            "--ulimit memlock=-1",
        )


def find_shared_memory(facts: Facts) -> Iterator[Finding]:
    """``/dev/shm``, which the engine's ranks talk through and others fill."""
    room, configuration = facts.machine.shared_memory, facts.configuration
    num_ranks = 1 if configuration is None else configuration.num_ranks
    if room is None:
        if num_ranks > 1:
            yield warning(
                "there is no /dev/shm",
                f"{num_ranks} ranks pass each step's work through it",
                "mount a tmpfs there",
            )
        return
    yield from _regions_of_others(facts)
    if num_ranks > 1 and room.total_bytes <= _DOCKERS_DEFAULT_BYTES:
        yield warning(
            f"/dev/shm has {format_bytes(room.total_bytes)}, docker's default",
            f"{num_ranks} ranks pass each step's work through it and stop when it is "
            "full",
            "start the container with --shm-size=16g or --ipc=host",
        )
    else:
        yield ok(
            f"/dev/shm has {format_bytes(room.free_bytes)} free of "
            f"{format_bytes(room.total_bytes)}; host memory of kvcellar is not in it"
        )


def _regions_of_others(facts: Facts) -> Iterator[Finding]:
    room, configuration = facts.machine.shared_memory, facts.configuration
    if room is None or configuration is None:
        return
    for connector in configuration.transfer.others:
        asked = extra_of(connector).get("cpu_bytes_to_use")
        is_there = name_of(connector) in _IN_SHARED_MEMORY
        if not is_there or not isinstance(asked, int | float):
            continue
        needed = asked * configuration.num_local_replicas / configuration.num_nodes
        if needed > room.free_bytes:
            yield warning(
                f"{name_of(connector)} puts {format_bytes(needed)} into /dev/shm, "
                f"which has {format_bytes(room.free_bytes)} free",
                "its start fails, or the kernel ends the server when pages are touched",
                "lower its cpu_bytes_to_use, or enlarge /dev/shm",
            )


def find_huge_pages(facts: Facts) -> Iterator[Finding]:
    """Transparent huge pages, which the arena asks for."""
    mode = facts.machine.huge_pages
    if mode in ("always", "madvise"):
        yield ok(f"transparent huge pages: {mode}")
        return
    yield note(
        f"transparent huge pages are {'off' if mode else 'not offered'} here",
        "filling host memory for the first time takes two to three times as long",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" if mode else "",
    )


def find_numa(facts: Facts) -> Iterator[Finding]:
    """Nodes of memory that one rank's share may spill over."""
    nodes = facts.machine.node_bytes
    if len(nodes) < 2:
        yield ok("one NUMA node")
        return
    smallest = min(nodes.values())
    asked = local_host_bytes(facts)
    if asked is not None and asked > smallest:
        yield note(
            f"host memory of {format_bytes(asked)} spans {len(nodes)} NUMA nodes, the "
            f"smallest of {format_bytes(smallest)}",
            "a GPU reads the memory of its own node faster than another's",
            "bind each replica to its GPUs' node, for instance with numactl or "
            "--numa-bind",
        )
    else:
        yield ok(f"{len(nodes)} NUMA nodes, the smallest {format_bytes(smallest)}")


def find_leftovers(facts: Facts) -> Iterator[Finding]:
    """Files and engines of servers that are gone."""
    for left in facts.machine.leftovers:
        taken = format_bytes(left.num_bytes)
        if left.process_id is None:
            yield warning(
                f"{left.name} ({taken}) belongs to no running server",
                "it takes memory from /dev/shm, and a later start may fail on it",
                f"rm {left.name}",
            )
        else:
            yield warning(
                f"{left.name} ({taken}) has outlived its server",
                "it keeps its device and host memory",
                f"kill {left.process_id}",
            )
    if not facts.machine.leftovers:
        yield ok("no leftovers of dead servers")


CHECKS = (
    Check("locked-memory", "may host memory be pinned?", find_locked_memory),
    Check("shared-memory", "is /dev/shm large enough?", find_shared_memory),
    Check("huge-pages", "are huge pages on?", find_huge_pages),
    Check("numa", "does host memory span NUMA nodes?", find_numa),
    Check("leftovers", "did dead servers leave something?", find_leftovers),
)
