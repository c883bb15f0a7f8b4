"""Where the sockets of running engines lie, and which belong to one server.

    $KVCELLAR_RUN_DIR, $XDG_RUNTIME_DIR/kvcellar, or /tmp/kvcellar-<user id>
        <engine's process id>-<its parent's>-<number>.sock

vLLM's API server and its engine are two processes that share a user and an
environment, and one is the other's parent, or both have the same one. That is all it
takes to find each other. The folder is the user's alone. A socket nobody listens on is
a leftover of a dead server; it is removed by whoever starts next.
"""

import contextlib
import itertools
import os
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

RUN_FOLDER_VARIABLE = "KVCELLAR_RUN_DIR"
_MOST_PATH_BYTES = 100  # Source: unix(7), sun_path holds 108
_LONGEST_NAME = "4194304-4194304-99.sock.tmp"  # Source: proc(5), the largest process id
_NAME = re.compile(r"(\d+)-(\d+)-\d+\.sock")
_numbers = itertools.count()


def run_folder(environment: Mapping[str, str], user_id: int) -> Path:
    """The folder of the sockets of one user's servers; it may not exist yet."""
    given = environment.get(RUN_FOLDER_VARIABLE)
    if given:
        return Path(given)
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime, "kvcellar")
    is_short = len(os.fsencode(folder / _LONGEST_NAME)) <= _MOST_PATH_BYTES
    if runtime and is_short and Path(runtime).is_dir():
        return folder
    return Path(f"/tmp/kvcellar-{user_id}")


def own_run_folder() -> Path:
    """The folder of this process's user."""
    return run_folder(os.environ, os.getuid())


def make_private(folder: Path) -> None:
    """Create the folder for its owner alone, or see that it is so.

    Raises:
        PermissionError: somebody else owns it, or others may enter it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(folder):
        raise PermissionError(
            f"{folder} is not a folder of this user alone (mode 0700); remove it, or "
            f"set {RUN_FOLDER_VARIABLE} to another one"
        )


def _is_private(folder: Path) -> bool:
    """Whether it is a folder that this process's user alone may enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_ours and not stat.S_IMODE(found.st_mode) & 0o077


def new_socket_path(folder: Path) -> Path:
    """Where an engine in this process may listen; another one at each call."""
    name = f"{os.getpid()}-{os.getppid()}-{next(_numbers)}.sock"
    return folder / name


def sockets_near(folder: Path, process_id: int, parent_id: int) -> list[Path]:
    """Sockets of the engines that belong to an API server, in order of their age.

    Args:
        process_id: the API server's.
        parent_id: its parent's.
    """
    found = _parsed(folder)
    near = [p for p, (pid, parent) in found.items() if process_id in (pid, parent)]
    return near or [p for p, (_, parent) in found.items() if parent == parent_id]


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove sockets on which nobody listens; which ones."""
    removed = []
    for path in _parsed(folder):
        if not _is_listening(path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                removed.append(path)
    return removed


def _parsed(folder: Path) -> dict[Path, tuple[int, int]]:
    """Sockets and the two process ids in their names; none if others may put some."""
    found: dict[Path, tuple[int, int]] = {}
    if not _is_private(folder):
        return found
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir(), key=_age):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                found[path] = int(match[1]), int(match[2])
    return found


def _age(path: Path) -> tuple[float, str]:
    try:
        return path.lstat().st_mtime, path.name
    except FileNotFoundError:  # its server has just ended
        return 0.0, path.name


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it is too busy to answer, so it is there
            return True
    return True
