import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcellar.serve import process, run
from kvcellar.serve.address import free_port
from kvcellar.serve.command import ServeSettings
from kvcellar.serve.run import serve

# Answers /health, and on the first signal ends with status 5.
_SERVER = """
import http.server, signal, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
def leave(*_):
    raise SystemExit(5)
signal.signal(signal.SIGTERM, leave)
{extra}
http.server.HTTPServer(("127.0.0.1", {port}), Health).serve_forever()
"""


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServeSettings]:
    """Settings of a server on a free port, with the checks left out."""
    monkeypatch.setattr(run, "check_settings", lambda _: None)
    kept = {number: signal.getsignal(number) for number in run._SIGNALS}
    kept[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
    yield ServeSettings("m", 2**30, "eager", ("--port", str(free_port())))
    signal.alarm(0)
    for number, handler in kept.items():
        signal.signal(number, handler)


def use_server(
    monkeypatch: pytest.MonkeyPatch, settings: ServeSettings, extra: str = ""
) -> None:
    port = settings.vllm_arguments[1]
    script = _SERVER.format(port=port, extra=extra)
    command = [sys.executable, "-c", script]
    monkeypatch.setattr(run, "server_command", lambda _: command)


class Announced:
    """Takes the announcements, and sends this process signals for each."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        for number in self.numbers:
            os.kill(os.getpid(), number)


def test_one_line_says_that_kvcellar_is_on(settings, monkeypatch):
    """Once the server answers, one line tells size, mode and address; a signal ends."""
    use_server(monkeypatch, settings)
    announced = Announced(signal.SIGTERM)
    assert serve(settings, announced) == 5
    port = settings.vllm_arguments[1]
    assert announced.lines == [
        f"kvcellar is on: 1.00 GiB host memory, eager, http://127.0.0.1:{port}"
    ]


def test_a_second_signal_kills(settings, monkeypatch):
    """A server that ignores the first signal is killed by the second."""
    use_server(monkeypatch, settings, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    announced = Announced(signal.SIGTERM, signal.SIGTERM)
    assert serve(settings, announced) == 128 + signal.SIGKILL


def test_a_server_that_hangs_in_its_ending_is_killed(settings, monkeypatch):
    """After the grace time a server that ignored the signal is killed."""
    monkeypatch.setattr(run, "GRACE_SECONDS", 1.0)
    use_server(monkeypatch, settings, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    assert serve(settings, Announced(signal.SIGTERM)) == 128 + signal.SIGKILL


def test_a_server_that_never_was_ready_is_named(settings, monkeypatch):
    """A failing start returns the server's status and points to its messages."""
    use_server(monkeypatch, settings, "raise SystemExit(9)")
    errors: list[str] = []
    monkeypatch.setattr(
        run.logger, "error", lambda text, *values: errors.append(text % values)
    )
    announced = Announced()
    assert serve(settings, announced) == 9
    assert announced.lines == []
    assert len(errors) == 1
    assert errors[0].startswith("the server ended with exit status 9")


def test_both_signals_share_one_grace_time():
    """The alarm is whole seconds, so the grace time must be too."""
    assert process.GRACE_SECONDS == round(process.GRACE_SECONDS) > 0
    assert Path(process.watchdog.PATH).is_file()
