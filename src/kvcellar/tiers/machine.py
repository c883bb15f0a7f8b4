"""How much memory this machine has, and how much a process here may still take.

Three numbers bound an arena: the machine's memory, what the kernel could hand out now
(``MemAvailable``), and what is left under the memory limit of every control group
above this process. Parsing takes texts, so that it can be tested with any machine's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvcellar.errors import ConfigError
from kvcellar.layout.units import format_bytes

_UNLIMITED_BYTES = 2**60  # version 1 writes "no limit" as a number near 2**63


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Memory that bounds this process, in bytes.

    Attributes:
        total_bytes: the machine's memory.
        available_bytes: what can be taken now without swapping.
        limit_bytes: the tightest control-group limit; None if there is none.
        below_limit_bytes: what is left under the group with the least left; None if
            no group has a limit.
    """

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None = None
    below_limit_bytes: int | None = None


def check_fits(
    num_bytes: int, machine: MachineMemory, machine_bytes: int | None = None
) -> None:
    """Refuse a host memory that this machine cannot hold.

    Args:
        num_bytes: bytes asked for by this rank.
        machine: what there is.
        machine_bytes: asked for by all ranks on this machine together; None if this
            is the only one.

    Raises:
        ConfigError: the size is not positive, or more than there is.
    """
    if num_bytes <= 0:
        raise ConfigError(
            f"host memory of {num_bytes} bytes cannot be used; set host_memory to a "
            'size above zero, such as "8GiB"'
        )
    asked = num_bytes if machine_bytes is None else machine_bytes
    whose = "" if asked == num_bytes else " in all for the ranks on this machine"
    for there, where in _bounds(machine):
        if asked > there:
            raise ConfigError(
                f"host memory of {_both(asked)}{whose} is more than {where}, "
                f"{_both(there)}; lower host_memory to at most that or free memory "
                "first"
            )


def _bounds(machine: MachineMemory) -> Iterator[tuple[int, str]]:
    yield machine.total_bytes, "the memory of this machine"
    if machine.limit_bytes is not None:
        yield machine.limit_bytes, "the memory limit of this process's control group"
    yield machine.available_bytes, "the memory available on this machine now"
    if machine.below_limit_bytes is not None:
        yield (
            machine.below_limit_bytes,
            "what is left under the memory limit of this process's control group",
        )


def _both(num_bytes: int) -> str:
    return f"{num_bytes} bytes ({format_bytes(num_bytes)})"


def read_machine(root: Path = Path("/")) -> MachineMemory:
    """Read the numbers of the machine whose ``/proc`` and ``/sys`` lie below ``root``.

    Control groups that cannot be read are taken to have no limit.

    Raises:
        ConfigError: ``/proc/meminfo`` cannot be read or understood.
    """
    meminfo = _read(root / "proc/meminfo")
    if meminfo is None:
        raise ConfigError(
            f"{root / 'proc/meminfo'} cannot be read, so the size of host memory "
            "cannot be checked; kvcellar runs on Linux with /proc mounted"
        )
    total, available = parse_meminfo(meminfo)
    groups = _read(root / "proc/self/cgroup") or ""
    rooms = [
        room
        for directory in control_group_paths(groups)
        if (room := _room_of(root / directory)) is not None
    ]
    return MachineMemory(
        total,
        available,
        min((limit for limit, _ in rooms), default=None),
        min((left for _, left in rooms), default=None),
    )


def parse_meminfo(text: str) -> tuple[int, int]:
    """Return ``MemTotal`` and ``MemAvailable`` in bytes.

    Raises:
        ConfigError: one of the two lines is missing.
    """
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        total, available = (
            int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")
        )
    except (KeyError, IndexError, ValueError) as cause:
        raise ConfigError(
            "/proc/meminfo has no readable MemTotal and MemAvailable, so the size of "
            "host memory cannot be checked; kvcellar needs Linux 3.14 or later"
        ) from cause
    return total, available


def control_group_paths(text: str) -> list[str]:
    """Directories whose memory limits apply, innermost first, without a leading ``/``.

    Args:
        text: ``/proc/self/cgroup``: lines of ``hierarchy:controllers:path``; version 2
            has hierarchy 0 and no controllers.

    A limit may sit on any ancestor. Inside a container the path may be the host's and
    not exist, while the mount's root is the container's own group, so it is included.

    Source: cgroups(7).
    """
    found: list[str] = []
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            mount = "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            mount = "sys/fs/cgroup/memory"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        found += ["/".join([mount, *parts[:n]]) for n in range(len(parts), -1, -1)]
    return found


def control_group_room(
    limit_text: str, usage_text: str, stat_text: str
) -> tuple[int, int] | None:
    """Return a control group's limit and the bytes left under it; None if unlimited.

    Args:
        limit_text: ``memory.max`` (version 2) or ``memory.limit_in_bytes``.
        usage_text: ``memory.current`` or ``memory.usage_in_bytes``.
        stat_text: ``memory.stat``; its inactive file cache can be reclaimed, so it
            counts as free.
    """
    limit = limit_text.strip()
    if not limit.isdigit() or int(limit) >= _UNLIMITED_BYTES:
        return None
    pairs = (line.split() for line in stat_text.splitlines())
    stat = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    reclaimable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    used = int(usage_text.strip()) if usage_text.strip().isdigit() else 0
    return int(limit), max(int(limit) - max(used - reclaimable, 0), 0)


def _room_of(directory: Path) -> tuple[int, int] | None:
    names = (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
    for limit_name, usage_name in names:
        limit = _read(directory / limit_name)
        if limit is not None:
            usage = _read(directory / usage_name) or ""
            return control_group_room(
                limit, usage, _read(directory / "memory.stat") or ""
            )
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
