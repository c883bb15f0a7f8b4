"""Memory that several processes of one machine share, without a name anywhere.

    rank 0   memory file, number 17   <-- opened by rank 1 as /proc/<pid of 0>/fd/17

The kernel keeps such a file for as long as a process has it open or mapped. So however
the processes end, even by ``kill -9``, the memory goes with the last of them.

The same way opens any file of another process of the same user, pipes too.

Source: memfd_create(2), proc(5); sealing in fcntl(2).
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from kvcellar.errors import ConfigError, TierError

_NAME = "kvcellar"  # seen in /proc/PID/maps only; it need not be unique
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that a process has open, as other processes find it.

    Attributes:
        machine: names the running kernel and the process's view of process numbers.
        pid: the process.
        number: its descriptor of the file.
        identity: device and inode, by which one file is told from another.
    """

    machine: str
    pid: int
    number: int
    identity: tuple[int, int]


def new_memory_file() -> int:
    """A descriptor of an empty file in memory.

    Raises:
        TierError: this system has no such files.
    """
    try:
        return os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (AttributeError, OSError) as cause:
        raise TierError("host", "make shared memory", str(cause)) from cause


def fix_size(file: int, num_bytes: int) -> None:
    """Give a memory file its size, for good. Every process that shares it does.

    Raises:
        ConfigError: another process has given it another size, or the kernel refuses
            this one.
    """
    cause: Exception | None = None
    try:
        os.ftruncate(file, num_bytes)  # to the size it has, that is no change
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except (OSError, OverflowError) as error:
        cause = error  # another process may just have sealed it, with the same size
    has_bytes = os.fstat(file).st_size
    is_sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    if has_bytes != num_bytes or not is_sealed:
        raise ConfigError(
            f"shared host memory of {num_bytes} bytes cannot be had ({cause}; it has "
            f"{has_bytes} bytes by now); set share_replicated to off"
        ) from cause


def describe_file(file: int, root: Path = Path("/")) -> OpenFile:
    """How other processes of this machine find a file of this one.

    Raises:
        TierError: ``/proc`` cannot be read.
    """
    stat = os.fstat(file)
    return OpenFile(_machine(root), os.getpid(), file, (stat.st_dev, stat.st_ino))


def open_file(theirs: OpenFile, flags: int, root: Path = Path("/")) -> int:
    """Open a file of another process, for reading or writing.

    Raises:
        TierError: that process is on another machine or not there, or the system does
            not let one of its processes open another's files.
    """
    where = f"process {theirs.pid}"
    if theirs.machine != _machine(root):
        raise TierError("host", "share memory", f"{where} is on another machine")
    path = root / f"proc/{theirs.pid}/fd/{theirs.number}"
    try:
        file = os.open(path, flags | os.O_CLOEXEC)
    except OSError as cause:
        reason = f"{path} cannot be opened ({cause.strerror})"
        raise TierError("host", "share memory", reason) from cause
    stat = os.fstat(file)
    if (stat.st_dev, stat.st_ino) != theirs.identity:
        os.close(file)
        raise TierError("host", "share memory", f"{path} is another file by now")
    return file


def _machine(root: Path) -> str:
    """Two processes with the same one see each other under the same numbers."""
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        numbers = os.readlink(root / "proc/self/ns/pid")
    except OSError as cause:
        raise TierError("host", "share memory", str(cause)) from cause
    return f"{boot} {numbers}"
