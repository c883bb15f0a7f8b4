"""The facts of a machine that checks look at, and reading them below ``/``."""

import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvcellar.doctor.leftovers import Leftover, find_leftovers
from kvcellar.tiers.machine import MachineMemory, read_machine

_SHARED_MEMORY = "dev/shm"
_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a file system."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What one machine has and allows.

    Attributes:
        memory: what bounds the memory of a process here.
        locked_limit_bytes: memory that a process may lock; None for no limit.
        shared_memory: the file system ``/dev/shm``; None if there is none.
        huge_pages: the kernel's mode of transparent huge pages: ``"always"``,
            ``"madvise"`` or ``"never"``; empty where it has none.
        node_bytes: memory of each NUMA node; empty where that is unknown.
        num_gpus: NVIDIA and AMD GPUs whose drivers are loaded.
        leftovers: files and processes that dead servers left behind.
    """

    memory: MachineMemory
    locked_limit_bytes: int | None = None
    shared_memory: Room | None = None
    huge_pages: str = ""
    node_bytes: Mapping[int, int] = field(default_factory=dict)
    num_gpus: int = 0
    leftovers: tuple[Leftover, ...] = ()


def read_this_machine(root: Path = Path("/")) -> Machine:
    """Read the machine whose ``/proc``, ``/sys`` and ``/dev`` lie below ``root``.

    The limit of locked memory is this process's own.

    Raises:
        ConfigError: the kernel does not tell its memory.
    """
    return Machine(
        memory=read_machine(root),
        locked_limit_bytes=_locked_limit(),
        shared_memory=_room(root / _SHARED_MEMORY),
        huge_pages=_chosen(_text(root / _HUGE_PAGES)),
        node_bytes=dict(_nodes(root)),
        num_gpus=_num_gpus(root),
        leftovers=find_leftovers(root),
    )


def _locked_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _room(path: Path) -> Room | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    size = status.f_frsize
    return Room(status.f_blocks * size, status.f_bavail * size)


def _chosen(text: str) -> str:
    """The word in brackets, as the kernel marks the mode that is on."""
    match = re.search(r"\[(\w+)\]", text)
    return match.group(1) if match else ""


def _nodes(root: Path) -> Iterator[tuple[int, int]]:
    """Source of the line's form: Linux, Documentation/ABI, sysfs-devices-node."""
    for path in sorted(root.glob("sys/devices/system/node/node[0-9]*/meminfo")):
        match = re.search(r"Node (\d+) MemTotal:\s+(\d+) kB", _text(path))
        if match:
            yield int(match.group(1)), int(match.group(2)) * 1024


def _num_gpus(root: Path) -> int:
    nvidia = list(root.glob("proc/driver/nvidia/gpus/*"))
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/gpu_id")  # 0 is a processor
    amd = [path for path in nodes if _text(path).strip() not in ("", "0")]
    return len(nvidia) + len(amd)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
