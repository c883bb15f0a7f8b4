"""Which curves the page shows: one chart per size of the memory that varies less."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcellar.replay.report.columns import Row, Value
from kvcellar.replay.report.line_chart import Axes, Curve, Point, line_chart
from kvcellar.replay.report.scales import Scale, memory_scale
from kvcellar.replay.report.words import choice_text, label_of, memory_text, number

NUM_COLOURS = 8
_NAMES = {"host_memory_bytes": "host memory", "device_memory_bytes": "device memory"}


@dataclass(frozen=True, slots=True)
class Figure:
    """What a family of charts shows.

    Attributes:
        name: column of the value.
        y_label: what it is, with its unit.
        shown: the value in words.
        factor: from the column's unit to the axis' one.
        references: columns of dotted lines, and their names.
    """

    name: str
    y_label: str
    shown: Callable[[float], str]
    factor: float = 1.0
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """How the rows fall into charts and curves.

    Attributes:
        x_name: column along the axis.
        facet_name: the other memory; one chart for each of its sizes.
        choices: kinds of configuration, in the order of the grid: one curve each.
    """

    rows: tuple[Row, ...]
    x_name: str
    facet_name: str
    choices: tuple[str, ...]

    @property
    def x_label(self) -> str:
        """What the axis shows."""
        return _NAMES[self.x_name]

    def style_of(self, choice: str) -> tuple[int, bool, bool]:
        """Colour by kind, dashes if lazy, rings for other admissions."""
        row = next(row for row in self.rows if choice_text(row) == choice)
        kinds = list(dict.fromkeys(_kind(r) for r in self.rows if r["system"]))
        admissions = list(
            dict.fromkeys(r["admission"] for r in self.rows if r["policy"])
        )
        colour = kinds.index(_kind(row)) if row["system"] else 0
        is_hollow = row["policy"] is not None and admissions.index(row["admission"]) > 0
        return colour % NUM_COLOURS, row["mode"] == "lazy", is_hollow


def _kind(row: Row) -> tuple[Value, ...]:
    """What a colour stands for: policy and placement, or one of vLLM's connectors."""
    return row["system"], row["policy"], row["placement"]


def family_of(rows: Sequence[Row]) -> Family:
    """Put the memory with more sizes on the axis; host memory if they are as many."""
    num_hosts = len({row["host_memory_bytes"] for row in rows})
    num_devices = len({row["device_memory_bytes"] for row in rows})
    names = ("host_memory_bytes", "device_memory_bytes")
    x_name, facet_name = names if num_hosts >= num_devices else names[::-1]
    choices = dict.fromkeys(choice_text(row) for row in rows if row["system"])
    return Family(tuple(rows), x_name, facet_name, tuple(choices) or ("",))


def charts_of(
    family: Family, figure: Figure, make_scale: Callable[[Sequence[float]], Scale]
) -> list[str]:
    """One chart for each size of the other memory, all with the same axes."""
    x_scale = memory_scale([number(r, family.x_name) for r in family.rows], memory_text)
    values = [number(row, figure.name) * figure.factor for row in family.rows]
    for name, _ in figure.references:
        values += [number(row, name) * figure.factor for row in family.rows]
    axes = Axes(x_scale, make_scale(values), family.x_label, figure.y_label)
    charts = []
    for size in dict.fromkeys(row[family.facet_name] for row in family.rows):
        rows = [row for row in family.rows if row[family.facet_name] == size]
        curves = [_curve(family, figure, rows, choice) for choice in family.choices]
        references = [
            _reference(family, figure, rows, number)
            for number in range(len(figure.references))
        ]
        curves = [*references, *curves]
        size_text = memory_text(number(rows[0], family.facet_name))
        title = f"{_NAMES[family.facet_name]} {size_text}"
        charts.append(line_chart(title, axes, curves))
    return charts


def _curve(family: Family, figure: Figure, rows: Sequence[Row], choice: str) -> Curve:
    """One kind of configuration; the point without host memory belongs to all."""
    own = [row for row in rows if not row["system"] or choice_text(row) == choice]
    colour, is_dashed, is_hollow = family.style_of(choice)
    points = [
        Point(
            number(row, family.x_name),
            number(row, figure.name) * figure.factor,
            f"{label_of(row)}: {figure.shown(number(row, figure.name))}",
        )
        for row in own
    ]
    points.sort(key=lambda point: point.x)
    return Curve(choice, tuple(points), colour, is_dashed, is_hollow)


def _reference(
    family: Family, figure: Figure, rows: Sequence[Row], which: int
) -> Curve:
    """What no cache exceeds; of several such lines all but the first have dashes."""
    column, name = figure.references[which]
    highest: dict[float, float] = {}
    for row in rows:
        x, y = number(row, family.x_name), number(row, column) * figure.factor
        highest[x] = max(y, highest.get(x, y))
    points = tuple(Point(x, highest[x], name) for x in sorted(highest))
    return Curve(name, points, None, is_dashed=which > 0)
