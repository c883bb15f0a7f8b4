"""``kvcellar top`` in a terminal: keys, time and size to the session, lines back."""

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from kvcellar.monitor.top.board import Board
from kvcellar.monitor.top.help_screen import HelpScreen
from kvcellar.monitor.top.picture import draw
from kvcellar.monitor.top.session import Session
from kvcellar.monitor.top.spans import Line

_TICK_SECONDS = 0.25


class TopApp(App[None]):
    """The live view.

    Args:
        session: has its first answer.
        clock: seconds on any steady clock.
    """

    TITLE = "kvcellar top"
    ENABLE_COMMAND_PALETTE = False
    CSS = "Footer { height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("p", "key('pause')", "Pause"),
        Binding("r", "key('reset')", "Reset"),
        Binding("w", "key('next_window')", "Window"),
        Binding("e", "key('next_engine')", "Engine"),
        Binding("plus,equals_sign", "key('slower')", "Slower", key_display="+"),
        Binding("minus", "key('faster')", "Faster", key_display="-"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
    ]

    def __init__(
        self, session: Session, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours, or none
        self.theme = "ansi-dark"
        self._session = session
        self._clock = clock
        self._board = Board(self._lines)

    def compose(self) -> ComposeResult:
        """The picture, and the keys below it."""
        yield self._board
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look at the clock."""
        self.set_interval(_TICK_SECONDS, self.tick)

    def tick(self) -> None:
        """Time has passed."""
        if self._session.tick(self._clock()):
            self._board.redraw()

    def _lines(self, width: int, height: int) -> Sequence[Line]:
        view = self._session.view(width, self._clock())
        has_colour, state = not self.no_color, self._session.state
        return draw(view, width, height, has_colour=has_colour, state=state)

    def action_key(self, name: str) -> None:
        """A key that the session knows."""
        getattr(self._session, name)()
        self.tick()
        self._board.redraw()

    def action_help(self) -> None:
        """Show what everything means."""
        self.push_screen(HelpScreen())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Engines can be chosen where there are several."""
        if (action, parameters) == ("key", ("next_engine",)):
            return len(self._session.follower.engines) > 1
        return True
