"""The widget that holds the picture."""

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from kvcellar.monitor.top.spans import Line, length
from kvcellar.monitor.top.styles import STYLES

Draw = Callable[[int, int], Sequence[Line]]
"""Makes the lines for a width and a height."""


class Board(Widget):
    """Shows lines as they are.

    Args:
        draw: makes them; asked again for each new size.
    """

    DEFAULT_CSS = "Board { width: 1fr; height: 1fr; }"

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self._draw = draw
        self._strips: list[Strip] = []

    def redraw(self) -> None:
        """Replace all lines."""
        self._strips = [_strip(text) for text in self._draw(*self.size)]
        self.refresh()

    def on_resize(self) -> None:
        """The picture fills the new size."""
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """One line; blank below the last."""
        if y >= len(self._strips):
            return Strip.blank(self.size.width, Style())
        return self._strips[y]


def _strip(text: Line) -> Strip:
    return Strip([Segment(one.text, STYLES[one.style]) for one in text], length(text))
