"""The updating line stays one row, whatever the terminal's width."""

import fcntl
import os
import pty
import struct
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.demo.progress import Progress, one_row

STAGE = "replaying 9,000 requests in 4 configurations"
DETAIL = "[####................] 18%, 0 done, 0:19 left"
END = "<end>"


@pytest.fixture
def terminal(monkeypatch):
    """A real one, 60 columns wide: a stream to write to, and what was written."""
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with os.fdopen(writer, "w") as stream:

        def written():
            stream.write(END)  # a terminal passes on what it gets bit by bit
            stream.flush()
            seen = b""
            while not seen.endswith(END.encode()):
                seen += os.read(reader, 65536)
            return seen.decode().removesuffix(END)

        yield stream, written
    os.close(reader)


def test_the_line_is_never_wider_than_the_terminal(terminal):
    """So the next update clears all of it; after a resize the new width counts."""
    stream, written = terminal
    with Progress(stream) as progress:
        progress.stage(STAGE)
        progress.detail(DETAIL)
        rows = written().split("\r\x1b[K")
        assert max(map(len, rows)) <= 59
        assert rows[-1].endswith(DETAIL)
        fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
        progress.detail(DETAIL)
        assert len(written().split("\r\x1b[K")[-1]) == 29


def test_a_terminal_that_cannot_clear_gets_plain_lines(terminal, monkeypatch):
    """No escape sequence, and no detail."""
    stream, written = terminal
    monkeypatch.setenv("TERM", "dumb")
    with Progress(stream) as progress:
        progress.stage(STAGE)
        progress.detail(DETAIL)
    assert written() == f"kvcellar: {STAGE}\r\n"


@given(st.text("abc ", max_size=60), st.text("#.", max_size=60), st.integers(1, 130))
def test_a_row_keeps_its_detail_as_long_as_it_fits(stage, detail, width):
    """The stage is cut first, and nothing is cut where both fit."""
    row = one_row(stage, detail, width)
    assert len(row) <= width
    if len(detail) + 3 <= width:
        assert row.endswith(detail)
    if len(f"kvcellar: {stage} {detail}") <= width:
        assert row == f"kvcellar: {stage} {detail}".rstrip()
