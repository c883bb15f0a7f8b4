"""The page: well-formed, self-contained, with all figures and both memories."""

import dataclasses
import html.parser
import re

import pytest
from replay_grids import MIB, report_of, trace_file

from kvcellar.replay.grid import GridAxes
from kvcellar.replay.presets_choice import CostChoice
from kvcellar.replay.report.columns import COLUMNS
from kvcellar.replay.report.curves import family_of
from kvcellar.replay.report.page import page_of
from kvcellar.replay.report.scales import (
    linear_scale,
    log_scale,
    memory_scale,
    value_scale,
)
from kvcellar.replay.report.svg import element, path_through

VOID = {"meta"}


class Checker(html.parser.HTMLParser):
    """Follows the tags, and collects what a test asks for."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.references, self.texts = [], [], [], []
        self.classes = set()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "data", "action", "poster", "srcset"):
                self.references.append((tag, name, value))
            if name == "class":
                self.classes |= set(value.split())

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert [] == checker.open
    return checker


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small trace, written once."""
    return trace_file(tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def report(path):
    """Two devices, three host memories, two modes."""
    axes = GridAxes(
        (40 * MIB, 60 * MIB), (0, 20 * MIB, 60 * MIB), modes=("eager", "lazy")
    )
    return report_of(path, axes=axes)


def test_the_page_is_well_formed_and_needs_nothing_else(report):
    """Every tag is closed; no script, no reference, no address."""
    page = page_of(report)
    checker = read(page)
    assert [] == checker.references
    assert not {"script", "link", "img", "iframe"} & set(checker.tags)
    assert not re.search(r"https?:|url\(|@import", page)


def test_the_table_holds_every_figure(report):
    """One heading per column and one line per configuration."""
    checker = read(page_of(report))
    assert len(COLUMNS) == checker.tags.count("th")
    assert len(COLUMNS) * len(report.rows) == checker.tags.count("td")


def test_every_chart_has_a_curve_per_kind_and_device(report):
    """Five families of curves, two devices, two modes; three charts of bars."""
    page = page_of(report)
    checker = read(page)
    assert 5 * 2 + 3 == page.count('role="img"')
    points = 5 * 2 * 2 * 3  # families, devices, modes, sizes of host memory
    assert points == page.count("<circle><title>") + len(
        re.findall(r"<circle [^>]*><title>", page)
    )
    assert {"device", "host", "evicted", "dead", "superseded"} <= checker.classes
    assert "dashed" in checker.classes


def test_the_hit_charts_show_what_no_cache_exceeds(report):
    """Two lines in each chart of hit ratios, both named in the legend."""
    page = page_of(report)
    assert 2 + 1 == page.count('class="curve ref"')
    assert 2 + 1 == page.count('class="curve ref dashed"')
    for words in ("no cache finds more", "no order of eviction finds more"):
        assert words in page


def test_both_themes_name_the_same_colours(report):
    """Every variable that is used has a light and a dark value."""
    page = page_of(report)
    light, dark = re.findall(r":root \{([^}]*)\}", page)
    names = [set(re.findall(r"--([\w-]+):", theme)) for theme in (light, dark)]
    assert names[0] == names[1]
    assert set(re.findall(r"var\(--([\w-]+)\)", page)) <= names[0]


def test_names_are_escaped(report):
    """A file's name cannot become markup."""
    trace = {**report.facts["trace"], "name": "<b>&\"'.jsonl"}
    odd = dataclasses.replace(report, facts={**report.facts, "trace": trace})
    page = page_of(odd)
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page
    read(page)


def test_without_time_and_without_host_memory_the_page_still_stands(path):
    """No chart of waiting, no curve but the device's."""
    report = report_of(
        path, axes=GridAxes((60 * MIB,), (0,)), costs=CostChoice(is_timeless=True)
    )
    page = page_of(report)
    read(page)
    assert "Time to first token" not in page
    assert "No chunk was evicted." in page
    assert "device alone" in page


def test_the_memory_with_more_sizes_is_the_axis(report):
    """Host memory where both have as many."""
    family = family_of(report.rows)
    assert ("host_memory_bytes", "device_memory_bytes") == (
        family.x_name,
        family.facet_name,
    )
    rows = [{**row, "host_memory_bytes": 1} for row in report.rows]
    assert "device_memory_bytes" == family_of(rows).x_name
    assert ((0, False, False), (0, True, False)) == (
        family.style_of("lru, eager"),
        family.style_of("lru, lazy"),
    )


def test_policies_differ_in_colour_and_admissions_in_rings(report):
    """In the order in which the grid names them."""
    changes = [("lru", "all"), ("other", "all"), ("other", "second-touch")]
    rows = [
        {**report.rows[1], "policy": policy, "admission": admission}
        for policy, admission in changes
    ]
    family = family_of(rows)
    assert [(0, False, False), (1, False, False), (1, False, True)] == [
        family.style_of(choice) for choice in family.choices
    ]


def test_placements_differ_in_colour(report):
    """Each kind of policy and placement has one."""
    changes = [("lru", "fixed"), ("lru", "geometric"), ("other", "fixed")]
    rows = [
        {**report.rows[1], "policy": policy, "placement": placement}
        for policy, placement in changes
    ]
    family = family_of(rows)
    assert "lru, fixed, eager" in family.choices
    assert [0, 1, 2] == [family.style_of(choice)[0] for choice in family.choices]


@pytest.mark.parametrize("highest", [0.0, 0.003, 1.0, 7.3, 99.9, 100.0, 12345.0])
def test_a_linear_axis_reaches_from_zero_past_the_highest_value(highest):
    """With few, equal steps."""
    scale = linear_scale(highest, str)
    values = [float(tick.label) for tick in scale.ticks]
    assert 0.0 == values[0] <= highest <= values[-1] * (1 + 1e-9)
    assert 3 <= len(values) <= 7
    for tick in scale.ticks:
        assert tick.place == pytest.approx(scale.place(float(tick.label)))


def test_values_far_apart_get_a_logarithmic_axis():
    """A thousandfold span; a zero keeps it linear."""
    far = value_scale([0.02, 30.0], str)
    assert far.place(0.02) > 0.05
    assert ("0.01", "100.0") == (far.ticks[0].label, far.ticks[-1].label)
    assert value_scale([0.0, 30.0], str).place(15.0) == pytest.approx(0.5)
    assert 2 == len(log_scale(1.0, 1.0, str).ticks)


def test_memory_goes_by_doublings_and_none_stands_left():
    """Equal factors are equal distances; a single size stands in the middle."""
    scale = memory_scale([0, 16, 64, 256], str)
    places = [scale.place(size) for size in (0, 16, 64, 256)]
    assert places == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert ["0", "16", "64", "256"] == [tick.label for tick in scale.ticks]
    assert 0.5 == memory_scale([64], str).place(64)
    close = memory_scale([1000, 1001, 2000], str)
    assert ["1000", "2000"] == [tick.label for tick in close.ticks]


def test_markup_is_escaped_and_numbers_are_short():
    """Attributes in quotes, two decimals, no minus before a zero."""
    text = element("a", "x", class_="c", stroke_width=1.005, title='"<&', y=-0.001)
    assert '<a class="c" stroke-width="1" title="&quot;&lt;&amp;" y="0">x</a>' == text
    assert "M0 1.5 L2 3.33" == path_through([(0.0, 1.5), (2.0, 10 / 3)])
