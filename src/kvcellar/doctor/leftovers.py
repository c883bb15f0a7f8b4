"""What dead servers leave behind: files in ``/dev/shm``, and orphaned engines.

A file is a leftover only if no process here has it open or mapped, by device and inode:
names are used again by later servers, so a name alone proves nothing. Files of other
users are passed over, since their processes cannot be looked into.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Source: v1/kv_offload/cpu/shared_offload_region.py, vLLM 0.32; ours start likewise.
_FILE_NAMES = re.compile(r"(vllm_offload_|kvcellar).*")
# Source: set_process_title, utils/system_utils.py, vLLM 0.32; the kernel cuts at 15.
_ENGINE_NAME = "VLLM::EngineCor"
_Inode = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that a dead server left.

    Attributes:
        name: the file's path, or words for the process.
        num_bytes: memory that it still takes; 0 where unknown.
        process_id: of an orphaned engine; None for a file.
    """

    name: str
    num_bytes: int
    process_id: int | None = None


def find_leftovers(root: Path = Path("/")) -> tuple[Leftover, ...]:
    """Look below ``root`` for files and engines that no server owns any more."""
    return (*_dead_files(root), *_orphans(root))


def _dead_files(root: Path) -> Iterator[Leftover]:
    folder = root / "dev/shm"
    candidates = []
    for path in sorted(folder.glob("*")):
        status = _status(path)
        is_ours = status is not None and status.st_uid == os.geteuid()
        if is_ours and _FILE_NAMES.fullmatch(path.name):
            candidates.append((path, status))
    if not candidates:
        return
    in_use = set(_inodes_in_use(root))
    for path, status in candidates:
        assert status is not None
        device = status.st_dev
        inode = (os.major(device), os.minor(device), status.st_ino)
        if inode not in in_use:
            yield Leftover(str(path), status.st_blocks * 512)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # it went while we looked
        return None


def _inodes_in_use(root: Path) -> Iterator[_Inode]:
    """Files that some process here maps or has open; what we may not see is left out.

    Source: proc(5), ``/proc/[pid]/maps``: address, permissions, offset, device as
    hexadecimal ``major:minor``, inode, path.
    """
    for process in root.glob("proc/[0-9]*"):
        for line in _text(process / "maps").splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                major, minor = (int(part, 16) for part in fields[3].split(":"))
                yield major, minor, int(fields[4])
        for link in _entries(process / "fd"):
            status = _status(link)
            if status is not None:
                device = status.st_dev
                yield os.major(device), os.minor(device), status.st_ino


def _orphans(root: Path) -> Iterator[Leftover]:
    """Engines whose server is gone, so that the first process has adopted them.

    In a container the server itself is often the first process: its engines are not
    orphans.
    """
    first = _text(root / "proc/1/cmdline")
    if "vllm" in first or "kvcellar" in first or "python" in first:
        return
    for process in sorted(root.glob("proc/[0-9]*")):
        if _text(process / "comm").strip() != _ENGINE_NAME:
            continue
        fields = dict(
            line.split(":", 1)
            for line in _text(process / "status").splitlines()
            if ":" in line
        )
        if fields.get("PPid", "").strip() == "1":
            resident = fields.get("VmRSS", "0").split()[0]
            pid = int(process.name)
            yield Leftover(f"engine process {pid}", int(resident) * 1024, pid)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
