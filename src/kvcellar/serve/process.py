"""One server process with everything it starts, which ends as a whole.

The server leads a process group of its own. Whoever ends it ends the group, and a
watchdog does so when this process is killed before it can.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Self

from kvcellar.serve import watchdog
from kvcellar.serve.group import end_group, signal_group, wait_until_empty

GRACE_SECONDS = 15.0  # vLLM ends its engine in 1 to 5 s; copies may still have to drain
_STDERR = 2


class ServerProcess:
    """A started server; leaving the ``with`` block ends it and all its children.

    Args:
        command: program and arguments.
        environment: the server's environment; None for this process's own.
        output: where its stdout and stderr go; None to share this process's stderr.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        self._child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output if output is not None else _STDERR,
            stderr=output if output is not None else _STDERR,
            start_new_session=True,
        )
        try:
            self._watchdog = _start_watchdog(self._child.pid)
        except BaseException:
            end_group(self._child.pid, 0)
            raise

    @property
    def group_id(self) -> int:
        """The process group that the server leads; also its process id."""
        return self._child.pid

    def poll(self) -> int | None:
        """The exit status, or None while the server runs."""
        return self._child.poll()

    def wait(self, timeout_seconds: float) -> int | None:
        """The exit status, or None if the server still runs after the timeout."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout_seconds)
        return None

    def signal(self, signal_number: int) -> None:
        """Send a signal to the server itself, which tells its children in good order.

        The leader has not been reaped while ``poll`` is None, so its id cannot have
        passed to another process.
        """
        if self.poll() is None:
            self._child.send_signal(signal_number)

    def kill(self) -> None:
        """End the server and all its children at once."""
        signal_group(self.group_id, signal.SIGKILL)

    def close(self) -> None:
        """End the server, its children and the watchdog; safe to call twice."""
        if self._watchdog.stdin is None or self._watchdog.stdin.closed:
            return
        self.signal(signal.SIGTERM)
        self.wait(GRACE_SECONDS)
        if not wait_until_empty(self.group_id, 1.0):
            end_group(self.group_id, 2.0)
        self._child.wait()
        with contextlib.suppress(BrokenPipeError):
            self._watchdog.stdin.write(b".")
            self._watchdog.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _start_watchdog(group_id: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(watchdog.PATH)]
    return subprocess.Popen(
        [*command, str(group_id), str(GRACE_SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C at the terminal must not reach it
        cwd=os.sep,
    )
