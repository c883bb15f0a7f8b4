"""The printed tables: at most 80 columns, no figure lost, names where they differ."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_grids import MIB, report_of, trace_file

from kvcellar.replay.report.columns import COLUMNS
from kvcellar.replay.report.naming import in_common, names_of
from kvcellar.replay.report.report import Report
from kvcellar.replay.report.text import MOST_COLUMNS, NOTE, text_of

GIB = 2**30
CHOICES = {
    "policy": ("lru", "adaptive", "s3-fifo"),
    "placement": (None, "prompt-end", "geometric"),
    "admission": (None, "all", "second-touch"),
    "mode": ("eager", "lazy"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A small grid, played once."""
    return report_of(trace_file(tmp_path_factory.mktemp("trace")))


def row_of(device=40 * GIB, host=16 * GIB, system="kvcellar", figure=0, **choice):
    """A line of the report whose figures all are as large as the one given."""
    row = {
        column.name: float(figure) if column.digits is not None else figure
        for column in COLUMNS
    }
    row |= dict.fromkeys((*CHOICES, "system"))
    row |= {"device_memory_bytes": device, "host_memory_bytes": host}
    row |= {name: 1.0 for name in row if name.endswith("_ratio")}
    row |= {name: row["prompt_tokens"] for name in row if name.startswith("missed_")}
    if not host:
        return row
    if system != "kvcellar":
        return row | {"system": system, "dead_chunks": None}
    return row | {"system": system, "policy": "lru", "mode": "eager"} | choice


def text_with(report, rows):
    """The tables of other rows, without remarks."""
    return text_of(Report(report.facts, (), (), tuple(rows)))


sizes = st.sampled_from([0, 60 * MIB, 4 * GIB, 1536 * GIB, 10**10, 2**50])
rows_of_a_grid = st.builds(
    lambda devices, hosts, systems, figure, choices: [
        row_of(device, host, system, figure, **dict(zip(CHOICES, choice, strict=True)))
        for device, host, system in itertools.product(devices, hosts, systems)
        for choice in itertools.product(*choices)
    ],
    st.lists(sizes.filter(bool), min_size=1, max_size=2, unique=True),
    st.lists(sizes, min_size=1, max_size=2, unique=True),
    st.lists(
        st.sampled_from(["kvcellar", "simple", "offloading"]), min_size=1, unique=True
    ),
    st.sampled_from([0, 7, 10**6, 10**9]),
    st.tuples(
        *(
            st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)
            for values in CHOICES.values()
        )
    ),
)


@given(rows=rows_of_a_grid)
def test_no_line_is_wider_than_a_terminal(report, rows):
    """Whatever is compared and however large the figures are; one line per row."""
    lines = text_with(report, rows).splitlines()
    assert max(map(len, lines)) <= MOST_COLUMNS
    assert len(lines) >= 5 * (len(rows) + 2)


def test_every_figure_of_the_report_is_printed(report):
    """Tables by their headings: the cells are the rows' values, in the rows' order."""
    text = text_of(report)
    parts = text.split("\n\n")[1:]
    blocks = [part.splitlines() for part in parts if not part.startswith(NOTE)]
    tables = {
        heading: [line.split() for line in block[-len(report.rows) :]]
        for block in blocks
        for heading in [block[-len(report.rows) - 1]]
    }
    assert 5 == len(tables)
    (evicted,) = (rows for heading, rows in tables.items() if "superseded" in heading)
    for cells, row in zip(evicted, report.rows, strict=True):
        assert [
            f"{row[name]:,}"
            for name in (
                "evicted_chunks",
                "dead_chunks",
                "evicted_checkpoints",
                "superseded_checkpoints",
            )
        ] == cells[-4:]
    (found,) = (rows for heading, rows in tables.items() if "ceiling" in heading)
    for cells, row in zip(found, report.rows, strict=True):
        assert f"{100 * row['hit_ratio']:.1f}" == cells[-3]


def test_what_all_share_is_said_once(report):
    """Only what differs has a column; the unit stands in the heading."""
    rows = [
        row_of(host=host, mode=mode) for host in (0, 16 * GIB) for mode in ("lazy",)
    ]
    text = text_with(report, rows)
    assert "everywhere: device memory 40 GiB, policy lru, mode lazy\n" in text
    assert ["host GiB"] == [one.heading for one in names_of(rows)]
    assert ("none", "16") == names_of(rows)[0].cells
    assert [] == names_of([row_of()])
    assert "device memory 40 GiB, host memory 16 GiB, policy lru, mode eager" == (
        in_common([row_of()])
    )


def test_sizes_have_one_unit_in_a_column():
    """That of the smallest, so that none becomes a fraction of nothing."""
    rows = [row_of(host=host) for host in (0, 60 * MIB, 4 * GIB, 10**10)]
    (column,) = names_of(rows)
    assert ("host MiB", ("none", "60", "4,096", "9,537")) == column[:2]


def test_a_native_connector_spans_the_choices_it_has_not(report):
    """One column for all choices; a server without host memory has a dash."""
    rows = [
        row_of(host=0),
        *(row_of(mode=mode, policy="adaptive") for mode in ("eager", "lazy")),
        row_of(system="offloading"),
    ]
    (_, column) = names_of(rows)
    assert ("mode", ("-", "eager", "lazy", "vLLM's offloading")) == column[:2]
    assert "policy adaptive" in in_common(rows)
    (column,) = names_of([row_of(), row_of(system="simple")])
    assert ("system", ("kvcellar", "vLLM's simple")) == column[:2]
    assert in_common([row_of(system="simple")]).endswith("vLLM's simple connector")


def test_numbers_stand_for_names_that_are_too_wide(report):
    """They are listed first, and each table begins with them."""
    rows = [
        row_of(device, figure=1, placement=placement, admission=admission, mode=mode)
        for device in (20 * GIB, 40 * GIB)
        for placement in ("junctions", "prompt-end")
        for admission in ("all", "second-touch")
        for mode in ("eager", "lazy")
    ]
    lines = text_with(report, rows).splitlines()
    listed = lines.index("configurations")
    assert " #  dev GiB  placement   admission     mode" == lines[listed + 1]
    assert "16       40  prompt-end  second-touch  lazy" == lines[listed + 17]
    assert 6 == sum(line.startswith("16  ") for line in lines)


def test_nothing_is_told_where_nothing_was_served(report):
    """A dash, not a hit ratio and times of zero."""
    empty = text_with(report, [row_of(figure=0)]).split("\n\n")
    for block in empty[1:4]:
        assert set(block.splitlines()[-1].split()) == {"-"}


def test_remarks_stand_apart_behind_the_tables(report):
    """Each on a line of its own."""
    told = Report(report.facts, (), ("One.", "Two."), report.rows)
    assert text_of(told).endswith(f"\n\n{NOTE}One.\n{NOTE}Two.")


def test_the_heading_says_what_was_read(report):
    """Trace, model, format and numbers; nothing of what was not skipped."""
    first, second = text_of(report).splitlines()[:2]
    assert "kvcellar replay: small.jsonl on gemma-3-270m" == first
    assert second.startswith("trace read as kvcellar-events, 150 requests with ")
    assert second.endswith(" prompt tokens")
