"""The terminal: sizes and keys, on textual's own pilot."""

import asyncio

import pytest

pytest.importorskip("textual")

from status_answers import answer, engine, followed, recorded

from kvcellar.monitor.top.app import TopApp
from kvcellar.monitor.top.board import Board
from kvcellar.monitor.top.help_screen import HelpScreen
from kvcellar.monitor.top.session import Session


class SilentPoller:
    """Never answers."""

    def ask(self, *, with_history):
        pass

    def take(self):
        return None


def play(script, size=(80, 24), follower=None):
    """Run the app with a clock that stands still, and ``script`` with its pilot."""
    session = Session(follower or followed(recorded()), SilentPoller(), 1.0)
    app = TopApp(session, clock=lambda: 0.0)

    async def run():
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await script(app, pilot)

    asyncio.run(run())
    return app


def shown(app):
    """The board's text."""
    board = app.query_one(Board)
    return "\n".join(board.render_line(y).text for y in range(board.size.height))


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 10), (20, 5), (300, 100)])
def test_it_fills_terminals_of_any_size(size):
    """The picture has all lines but the last, which lists the keys."""

    async def script(app, pilot):
        lines = shown(app).splitlines()
        assert size[1] - 1 == len(lines)
        assert {size[0]} == {len(one) for one in lines}

    play(script, size)


def test_it_follows_a_resize():
    """From one column of panels to three and back."""

    async def script(app, pilot):
        await pilot.resize_terminal(200, 50)
        await pilot.pause()
        assert {200} == {len(one) for one in shown(app).splitlines()}
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert {60} == {len(one) for one in shown(app).splitlines()}

    play(script)


def test_keys_reach_the_session():
    """Pause, window, interval and reset are seen at once."""

    async def script(app, pilot):
        await pilot.press("p")
        assert "paused" in shown(app)
        await pilot.press("p", "plus")
        assert "every 2 s" in shown(app)
        await pilot.press("minus", "minus")
        assert "every 0.5 s" in shown(app)
        await pilot.press("w", "w")
        assert "Prompt tokens, since start" in shown(app)
        await pilot.press("w", "r")
        assert "no prompt began to run in this time" in shown(app)

    play(script)


def test_help_opens_and_closes():
    """With the same key, or Escape; q there goes back and does not quit."""

    async def script(app, pilot):
        for key in ("question_mark", "escape", "q"):
            await pilot.press("question_mark")
            assert isinstance(app.screen, HelpScreen)
            await pilot.press(key)
            await pilot.pause()
            assert not isinstance(app.screen, HelpScreen)

    play(script)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_ends_at_once(key):
    """Whatever the server does; also from the help page with the second key."""

    async def script(app, pilot):
        await pilot.press(key)

    assert 0 == play(script).return_code


def test_engines_can_be_chosen_where_there_are_several():
    """The key is only there then."""

    async def alone(app, pilot):
        assert "e" not in app.active_bindings

    play(alone)
    both = followed(answer(engine(1), engine(1, number=1)))

    async def several(app, pilot):
        await pilot.press("e", "e")
        assert "engine 1 alone" in shown(app)

    play(several, follower=both)


def test_without_colours_it_has_shades(monkeypatch):
    """``NO_COLOR`` is heeded."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(app, pilot):
        assert "▓" in shown(app)

    play(script)
