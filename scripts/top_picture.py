"""Draw ``docs/pictures/top.svg`` from the recorded answer of a real server.

The answer, ``tests/data/top_status.json``, is what ``/kvcellar/status?history=1`` said
of the demo's tiny model after a minute and a half of three clients' conversations.
"""

import asyncio
import json
import pathlib
import re

from rich.terminal_theme import TerminalTheme

from kvcellar.monitor.follow import Follower
from kvcellar.monitor.poll import Poller
from kvcellar.monitor.top.app import TopApp
from kvcellar.monitor.top.session import Session

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "data" / "top_status.json"
PICTURE = ROOT / "docs" / "pictures" / "top.svg"
SIZE = (110, 31)
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # nothing is to be fetched
_EXPORTED_BACKGROUND = "#292929"  # rich's, whatever the theme
_BACKGROUND, _FOREGROUND = (13, 17, 23), (230, 237, 243)
_COLOURS = [
    *[(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)],
    *[(88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)],
]
THEME = TerminalTheme(_BACKGROUND, _FOREGROUND, _COLOURS, _COLOURS)


class Still(Poller):
    """Never asks, so that only what was recorded is shown."""

    def ask(self, *, with_history: bool) -> None:
        """Do nothing."""


def svg() -> str:
    """The picture, as textual exports it."""
    follower = Follower()
    follower.answered(json.loads(RECORDED.read_text(encoding="utf-8")), now=0.0)
    session = Session(follower, Still(dict), interval_seconds=1.0)
    app = TopApp(session, clock=lambda: 0.0)
    app.ansi_theme_dark = THEME
    app.ansi_color = False

    async def exported() -> str:
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            picture = app.export_screenshot(title="kvcellar top")
            picture = _FONTS.sub("", picture)
            return picture.replace(_EXPORTED_BACKGROUND, _hex(_BACKGROUND))

    return asyncio.run(exported())


def _hex(colour: tuple[int, int, int]) -> str:
    return "#" + bytes(colour).hex()


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(svg(), encoding="utf-8")
