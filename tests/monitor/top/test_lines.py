"""Lines, bars and frames fill exactly the cells they are given."""

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.monitor.top.bars import bar, cells_of, stacked
from kvcellar.monitor.top.box import Panel, framed
from kvcellar.monitor.top.chart import load_line, share_chart
from kvcellar.monitor.top.spans import Span, as_fits, fit, length, line, plain, spread
from kvcellar.monitor.view import Sources

LINES = st.lists(st.text("ab ", max_size=8), max_size=5).map(lambda p: line(*p))
SIZES = st.lists(st.floats(0, 1e12), min_size=1, max_size=5)


@given(LINES, LINES, st.integers(1, 30))
def test_lines_have_the_width_they_are_given(left, right, width):
    """Cut or filled, alone or at both ends."""
    assert width == length(fit(left, width))
    assert width == length(spread(left, right, width))
    assert width == length(as_fits([left, right], width))


def test_what_is_cut_says_so():
    """With an ellipsis; whole pieces are left out before one is cut."""
    assert "abc…" == plain(fit(line("abcdef"), 4))
    pieces = [line("one"), line("two"), line("three")]
    assert "one  two   " == plain(as_fits(pieces, 11))


@given(SIZES, st.integers(0, 40))
def test_cells_add_up(sizes, width):
    """To the whole bar, or to nothing; what is there is seen if there is room."""
    cells = cells_of(sizes, width)
    assert sum(cells) in (0, width)
    assert min(cells) >= 0
    if width >= len(sizes) and sum(sizes) > 0:
        assert all(cell for cell, size in zip(cells, sizes, strict=True) if size > 0)


def test_bars_without_colours_have_shades():
    """What is told apart by colour is told apart without it."""
    parts = [("device", 1), ("host", 1), ("computed", 2)]
    assert "██▓▓░░░░" == plain(stacked(parts, 8, has_colour=False))
    assert "████░░░░" == plain(stacked(parts, 8, has_colour=True))
    assert " " * 8 == plain(stacked([("device", 0)], 8, has_colour=True))


@given(st.floats(-1, 2), st.integers(1, 30))
def test_a_bar_is_as_wide_as_its_column(share, width):
    """Whatever the share; the least share is seen."""
    drawn = bar(share, width, "miss")
    assert width == length(drawn)
    assert (share > 0) == bool(plain(drawn).strip())


def test_columns_show_shares_from_below():
    """Device, then host, then what was computed; an idle slot is a dot."""
    slots = [None, Sources(), Sources(1, 1, 2), Sources(0, 4, 0), Sources(0, 0, 9)]
    shaded = [plain(row) for row in share_chart(slots, 4, has_colour=False)]
    assert ["  ░▓░", "  ░▓░", "  ▓▓░", " ·█▓░"] == shaded
    assert "  ▄▄█" == plain(load_line(slots))


def test_two_sources_in_one_cell():
    """With colours a cell can hold the end of one part and the start of the next."""
    (row,) = share_chart([Sources(1, 1, 0), Sources(0, 1, 1)], 1, has_colour=True)
    assert (Span("▄", "device-on-host"), Span("▄", "host")) == row
    (row,) = share_chart([Sources(1, 0, 1)], 1, has_colour=True)
    assert (Span("▄", "device"),) == row


@given(
    st.lists(LINES, max_size=6),
    st.text("ab", max_size=30),
    st.integers(8, 40),
    st.integers(2, 9),
)
def test_frames_have_the_size_they_are_given(lines, title, width, height):
    """Whatever is in them."""
    panel = Panel(title, lines, figure=title, below=(title, title))
    drawn = framed(panel, width, height)
    assert height == len(drawn)
    assert {width} == {length(one) for one in drawn}


def test_words_in_an_edge_that_is_too_short():
    """The figure goes first, then the title is cut."""
    tops = [plain(framed(Panel("title", (), "12"), w, 2)[0]) for w in (18, 14, 9)]
    assert ["╭─ title ─── 12 ─╮", "╭─ title ────╮", "╭─ tit…─╮"] == tops
