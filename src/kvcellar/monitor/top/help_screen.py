"""What the panels mean, and all keys."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

_TEXT = """\
[b]q[/b] quit   [b]p[/b] pause, go on   [b]r[/b] let the window begin now
[b]w[/b] window: 1 min, 10 min, since start
[b]e[/b] each engine alone, or all   [b]+[/b] slower   [b]-[/b] faster

[b]Prompt tokens[/b]
Where they came from: the device's own prefix cache, host memory, or computed again. \
A column is full where prompts began to run, blank where nothing did. The lowest row \
is the load.

[b]Host memory[/b] (all ranks)
Chunks grow with a prompt; checkpoints let it be resumed. Once it is full something \
goes for all that comes; "held once, evicted" among the reasons says what that costs.

[b]Copies[/b]
"each" is from the decision to the end of a copy, its wait included. A request waits \
that long for its load.

[b]Why tokens were computed[/b]
Every computed token has one reason; kvcellar why says it for one request.

[b]Busiest prefixes[/b]
Ranked by what they serve of late. Figures are since start; host is the share that was \
loaded.

More in docs/top.md. Esc goes back.
"""


class HelpScreen(ModalScreen[None]):
    """Shown over the picture until a key is pressed."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 70; max-width: 100%; height: auto; max-height: 100%;
        border: round ansi_green; padding: 0 1; scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,q,enter", "dismiss", "Back")
    ]

    def compose(self) -> ComposeResult:
        """The text, in a frame that scrolls if it must."""
        with VerticalScroll():
            yield Static(_TEXT)
