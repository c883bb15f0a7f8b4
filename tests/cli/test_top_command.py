"""``kvcellar top``: one picture, JSON, and one sentence for all that can be wrong."""

import importlib.util
import json
import sys

import pytest
from metrics_server import serving
from status_answers import answer, engine, recorded, tokens

from kvcellar.cli import top_command
from kvcellar.cli.main import main


@pytest.fixture
def server():
    """The URL of a server that says what was recorded."""
    with serving({"/kvcellar/status?history=1": json.dumps(recorded())}) as url:
        yield url


def test_one_plain_picture(server, capsys, monkeypatch):
    """As wide as the terminal; without escape sequences."""
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("LINES", "30")
    assert 0 == main(["top", "--once", "--server", server])
    text = capsys.readouterr().out
    assert "82% served" in text
    assert "\x1b" not in text
    assert max(len(one) for one in text.splitlines()) <= 90
    assert len(text.splitlines()) <= 29


def test_one_json_object(server, capsys):
    """Every figure of the picture; ``--json`` alone says once, too."""
    assert 0 == main(["top", "--json", "--server", server])
    view = json.loads(capsys.readouterr().out)
    assert {"sources", "host", "copies", "misses", "prefixes"} <= view.keys()
    assert 48 * 2**20 == view["host"]["capacity_bytes"]


def test_a_server_without_history_is_asked_twice(capsys, monkeypatch):
    """An interval apart, so that there is a rate to show."""
    slept = []
    monkeypatch.setattr(top_command.time, "sleep", slept.append)
    pages = {
        "/kvcellar/status?history=1": json.dumps(answer(engine(10, tokens(0, 0, 0)))),
        "/kvcellar/status": json.dumps(answer(engine(12, tokens(50, 25, 25)))),
    }
    with serving(pages) as url:
        assert 0 == main(["top", "--once", "--server", url, "--interval", "2"])
    assert [2.0] == slept
    assert "75% served" in capsys.readouterr().out


def fails(capsys, *arguments):
    """The one line that is printed, and the exit code."""
    code = main(["top", *arguments])
    (text,) = capsys.readouterr().err.splitlines()
    return code, text


def test_no_server_or_another_one(capsys):
    """Nobody there, no kvcellar, another program, a wrong URL."""
    code, text = fails(capsys, "--once", "--server", "http://127.0.0.1:9")
    assert (1, True) == (code, "no server answers at http://127.0.0.1:9" in text)
    with serving({}) as url:
        code, text = fails(capsys, "--once", "--server", url)
        assert (1, True) == (code, "start it with kvcellar serve" in text)
    with serving({"/kvcellar/status?history=1": '{"hello": 1}'}) as url:
        code, text = fails(capsys, "--once", "--server", url)
        assert (1, True) == (code, "no kvcellar status" in text)
    code, text = fails(capsys, "--once", "--server", "ftp://x")
    assert (2, True) == (code, "is not HTTP" in text)


@pytest.mark.parametrize("seconds", ["0", "-1", "61", "nan"])
def test_intervals_that_make_no_sense(seconds, capsys):
    """Refused with the bounds, before anybody is asked."""
    code, text = fails(capsys, "--once", f"--interval={seconds}")
    assert (2, True) == (code, "use 0.2 to 60 seconds" in text)


def test_without_a_terminal_or_textual(capsys, monkeypatch):
    """The live view says what it needs; one picture needs neither."""
    code, text = fails(capsys)
    assert (2, True) == (code, "no terminal to draw on; use --once" in text)
    monkeypatch.setattr(sys, "stdin", FakeTerminal())
    monkeypatch.setattr(sys, "stdout", FakeTerminal())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, text = fails(capsys)
    assert (2, True) == (code, 'pip install "kvcellar[top]"' in text)


class FakeTerminal:
    def isatty(self):
        return True
