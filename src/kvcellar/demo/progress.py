"""What the demo is doing: one updating line on a terminal, plain lines elsewhere."""

import os
from types import TracebackType
from typing import Self, TextIO

_CLEAR_LINE = "\r\x1b[K"
_USUAL_COLUMNS = 80  # where the terminal does not say
_PREFIX = "kvcellar: "


class Progress:
    """Writes progress to a stream; leaving the ``with`` block clears the line.

    The updating line is never wider than the terminal is now: only one row can be
    written again. A terminal that cannot clear a line (``TERM=dumb``) gets plain lines.

    Args:
        stream: usually stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._stage = ""

    def stage(self, name: str) -> None:
        """Begin a stage; elsewhere than on a terminal this prints a line."""
        if name == self._stage:
            return
        self._stage = name
        if self._is_terminal:
            self.detail("")
        else:
            print(f"kvcellar: {name}", file=self._stream, flush=True)

    def detail(self, text: str) -> None:
        """Show how far the stage is, on a terminal only."""
        if self._is_terminal:
            width = _columns(self._stream) - 1  # a full row would wrap in some
            self._stream.write(_CLEAR_LINE + one_row(self._stage, text, width))
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_terminal:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()


def one_row(stage: str, detail: str, width: int) -> str:
    """Both in at most ``width`` cells; the stage is cut first, at its end."""
    whole = f"{_PREFIX}{stage} {detail}".rstrip()
    if len(whole) <= width:
        return whole
    room = width - len(detail) - 1
    if room < 2 or not detail:
        return _cut(detail or stage, width)
    return f"{_cut(stage, room)} {detail}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"[:width]


def _columns(stream: TextIO) -> int:
    """Of the terminal behind the stream: stdout's may be another, or a file."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):  # not a terminal of the system's
        return _USUAL_COLUMNS
