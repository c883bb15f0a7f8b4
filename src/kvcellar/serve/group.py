"""The processes of one process group, seen through ``/proc``.

Standard library only, and nothing of ours: the watchdog runs this file's functions in
an interpreter that has no access to installed packages.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

_POLL_SECONDS = 0.05


def group_members(group_id: int, proc: Path = Path("/proc")) -> list[int]:
    """Process ids of the living members of a group; the dead but unreaped do not count.

    Source: proc(5), ``/proc/[pid]/stat``: after the name in parentheses come the
    state, the parent and the process group.
    """
    members = []
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # it ended while we looked
            continue
        state, _, group = stat.rpartition(")")[2].split()[:3]
        if int(group) == group_id and state not in "ZX":
            members.append(int(entry.name))
    return members


def signal_group(group_id: int, signal_number: int) -> None:
    """Send a signal to every member of a group; an empty group is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group_id, signal_number)


def wait_until_empty(group_id: int, timeout_seconds: float) -> bool:
    """Wait until the group has no living member; say whether that happened in time."""
    deadline = time.monotonic() + timeout_seconds
    while group_members(group_id):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def end_group(group_id: int, grace_seconds: float) -> None:
    """Ask every member to end, and kill those that have not within the grace time."""
    signal_group(group_id, signal.SIGTERM)
    if not wait_until_empty(group_id, grace_seconds):
        signal_group(group_id, signal.SIGKILL)
        wait_until_empty(group_id, grace_seconds)
