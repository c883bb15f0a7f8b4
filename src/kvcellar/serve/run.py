"""``kvcellar serve``: check, start, say that it is on, pass signals, end clean."""

import logging
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from kvcellar.layout.units import format_bytes
from kvcellar.serve.address import Address, address_of, is_healthy
from kvcellar.serve.arguments import has_option
from kvcellar.serve.command import ServeSettings, server_command
from kvcellar.serve.environment import server_environment
from kvcellar.serve.preflight import check_settings
from kvcellar.serve.process import GRACE_SECONDS, ServerProcess

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_SECONDS = 0.25


def serve(settings: ServeSettings, announce: Callable[[str], None]) -> int:
    """Run a server until it ends or a signal ends it.

    SIGINT, SIGTERM and SIGHUP are passed on; a second one, or a server that has not
    ended within the grace time, kills the whole process group.

    Args:
        settings: what to start.
        announce: called once, with one line, when the server answers.

    Returns:
        The server's exit status; 128 plus the number if a signal ended it.

    Raises:
        ConfigError: a pre-flight check failed; nothing was started.
    """
    check_settings(settings)
    environment = server_environment(settings, os.environ)
    with ServerProcess(server_command(settings), environment) as server:
        _SignalRelay(server).install()
        status = _watch(server, settings, announce)
    return status if status >= 0 else 128 - status


class _SignalRelay:
    """Passes signals to a server: the first as it is, a later one as a kill."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._has_passed_one = False

    def install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._pass_on)
        # From here on, a server that hangs in its own ending is killed.
        signal.signal(signal.SIGALRM, self._kill)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._has_passed_one:
            self._server.kill()
            return
        self._has_passed_one = True
        self._server.signal(number)
        signal.alarm(round(GRACE_SECONDS))

    def _kill(self, number: int, frame: FrameType | None) -> None:
        self._server.kill()


def _watch(
    server: ServerProcess, settings: ServeSettings, announce: Callable[[str], None]
) -> int:
    """Wait for the server's end, and announce it once when it answers."""
    address = address_of(settings.vllm_arguments)
    # A server on a UNIX socket has no address to ask at.
    is_announced = has_option(settings.vllm_arguments, "--uds")
    started = time.monotonic()
    while (status := server.wait(_POLL_SECONDS)) is None:
        if not is_announced and is_healthy(address):
            is_announced = True
            announce(_announcement(settings, address))
    if not is_announced and status > 0:
        logger.error(
            "the server ended with exit status %d after %.0f s, before it was ready; "
            "its own messages above say why",
            *(status, time.monotonic() - started),
        )
    return status


def _announcement(settings: ServeSettings, address: Address) -> str:
    host = format_bytes(settings.host_memory_bytes or 0)
    return f"kvcellar is on: {host} host memory, {settings.mode}, {address.url}"
