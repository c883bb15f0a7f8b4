"""What the demo is doing: one updating line on a terminal, plain lines elsewhere."""

from types import TracebackType
from typing import Self, TextIO

_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Writes progress to a stream; leaving the ``with`` block clears the line.

    Args:
        stream: usually stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
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
            line = f"{_CLEAR_LINE}kvcellar: {self._stage} {text}".rstrip()
            self._stream.write(line)
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
