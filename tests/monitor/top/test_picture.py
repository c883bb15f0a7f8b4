"""The whole picture at any size, from a real server's answer and from little."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from status_answers import answer, engine, followed, recorded, tokens

from kvcellar.monitor.make_view import Wish, make_view
from kvcellar.monitor.top.arrange import arrange
from kvcellar.monitor.top.once import picture_json, picture_text
from kvcellar.monitor.top.picture import draw, num_slots
from kvcellar.monitor.top.spans import length, plain
from kvcellar.monitor.top.styles import STYLES

NOW = 0.5
RECORDED = followed(recorded())
NEW = followed(answer(engine(1)))
TWO = followed(
    answer(engine(1, tokens()), engine(1, tokens(), number=1)),
    answer(engine(2, tokens(9, 9, 9)), engine(2, tokens(), number=1)),
)


def picture(follower, width, height, *, now=NOW, has_colour=False):
    view = make_view(follower, Wish(num_slots=num_slots(width)), now)
    return draw(view, width, height, has_colour=has_colour, state="every 1 s")


def words(follower, width, height, **options):
    lines = picture(follower, width, height, **options)
    return "\n".join(plain(one) for one in lines)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([RECORDED, NEW, TWO]),
    st.integers(1, 250),
    st.integers(1, 80),
    st.booleans(),
)
@example(RECORDED, 80, 23, True)
@example(TWO, 200, 59, True)
def test_every_size_is_filled_exactly(follower, width, height, has_colour):
    """Each line has the terminal's width, and there are as many as it has."""
    lines = picture(follower, width, height, has_colour=has_colour)
    assert height == len(lines)
    assert {width} == {length(one) for one in lines}
    assert {span.style for one in lines for span in one} <= STYLES.keys()


def test_everything_is_on_a_small_terminal():
    """80 by 24, with a line for the keys: all five panels, with their figures."""
    text = words(RECORDED, 80, 23)
    titles = ("Prompt tokens", "Host memory", "Copies", "Why tokens", "Busiest")
    assert all(title in text for title in titles)
    for figure in (
        "82% served",
        "never seen before",
        "held once, evicted",
        "of 48.0 MiB",
    ):
        assert figure in text
    assert text.startswith("kvcellar top  tiny-gemma3  eager adaptive  up ")


@pytest.mark.parametrize(
    ("width", "height", "num_engines", "names"),
    [
        (80, 21, 1, [["sources"], ["memory", "copies"], ["misses", "prefixes"]]),
        (200, 50, 1, [["sources", "memory", "copies"], ["misses", "prefixes"]]),
        (50, 17, 1, [["sources"], ["memory"], ["misses"]]),
        (80, 10, 1, [["sources"]]),
        (
            80,
            30,
            2,
            [["sources"], ["engines"], ["memory", "copies"], ["misses", "prefixes"]],
        ),
        (80, 21, 2, [["sources"], ["memory", "copies"], ["misses", "prefixes"]]),
    ],
)
def test_panels_fold(width, height, num_engines, names):
    """Side by side where it is wide; the most telling are kept where it is low."""
    rows = arrange(width, height, num_engines)
    assert names == [[place.name for column in row for place in column] for row in rows]
    assert sum(sum(p.height for p in row[0]) for row in rows) <= height
    for row in rows:
        assert width == sum(column[0].width for column in row)
        assert 1 == len({sum(place.height for place in column) for column in row})


def test_the_window_is_named():
    """As it was asked for, or how much of that is known yet."""
    titles = [
        (RECORDED, 60.0, "Prompt tokens, last 60 s ─"),
        (RECORDED, 600.0, "Prompt tokens, last 97 s (of 10 min) ─"),
        (RECORDED, None, "Prompt tokens, since start ─"),
        (NEW, 60.0, "Prompt tokens, last 0 s (of 60 s) ─"),
    ]
    for follower, seconds, title in titles:
        view = make_view(follower, Wish(window_seconds=seconds), NOW)
        lines = draw(view, 80, 24, has_colour=False)
        assert title in "\n".join(plain(one) for one in lines)


def test_a_silent_server_is_greyed():
    """The last picture stays, all in one style, and the first line says why."""
    lines = picture(RECORDED, 80, 23, now=7.0)
    assert "! no answer for 7 s" in plain(lines[0])
    assert {"stale"} == {span.style for one in lines[1:] for span in one}
    assert "82% served" in words(RECORDED, 80, 23, now=7.0)


def test_a_server_that_has_done_nothing():
    """No figure is made up, and nothing divides by zero."""
    text = words(NEW, 100, 40)
    for phrase in (
        "no prompt began to run",
        "nothing was computed",
        "none has served two requests yet",
        "nothing evicted",
    ):
        assert phrase in text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_heading_says_which_engine_is_shown(width):
    """Before the model, even if that is a long path; which is cut to its last part."""
    view = make_view(TWO, Wish(num_slots=num_slots(width), engine=1), NOW)
    model = "/a/long/path/to/where/models/are/kept/on/this/machine/tiny-gemma3"
    view = replace(view, server=replace(view.server, model=model))
    first = plain(draw(view, width, 24, has_colour=False, state="every 1 s")[0])
    assert first.startswith("kvcellar top  engine 1 alone  ")
    assert "tiny-gemma3" in first
    assert (model in first) == (width == 140)


def test_several_engines_are_listed():
    """If there is room; and one that left is marked."""
    assert "2 engines" in words(TWO, 100, 40)
    assert "─ Engines ─" in words(TWO, 100, 40)
    assert "─ Engines ─" not in words(TWO, 80, 23)
    gone = followed(answer(engine(1), engine(1, number=1)), answer(engine(2)))
    assert "no longer answers" in words(gone, 100, 40)


def test_a_plain_picture_has_shades():
    """What goes into a log says the same without colours, and ends in no blanks."""
    text = picture_text(RECORDED, 100, 40, NOW)
    assert all(shade in text for shade in "█▓░")
    assert not any(one.endswith(" ") for one in text.splitlines())
    assert '"served_tokens"' in picture_json(RECORDED, NOW)
