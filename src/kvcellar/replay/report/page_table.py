"""The page's table of all figures, and what each means."""

from collections.abc import Sequence

from kvcellar.replay.report.columns import Column, Row
from kvcellar.replay.report.svg import element, text_in
from kvcellar.replay.report.words import memory_text, number, plain_text

_MEMORIES = ("device_memory_bytes", "host_memory_bytes")
_WORDS = ("system", "policy", "placement", "admission", "mode")


def table_of(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """One line per configuration."""
    headings = [
        element(
            "th",
            text_in(column.name.replace("_", " ")),
            title=column.meaning,
            scope="col",
            class_="word" if column.name in _WORDS else None,
        )
        for column in columns
    ]
    head = element("thead", element("tr", *headings))
    body = element("tbody", *(_line(row, columns) for row in rows))
    return element("div", element("table", head, body), class_="scroll", tabindex=0)


def _line(row: Row, columns: Sequence[Column]) -> str:
    cells = []
    for column in columns:
        value = row[column.name]
        if column.name in _MEMORIES:
            shown = memory_text(number(row, column.name))
        else:
            shown = plain_text(value)
        style = "word" if column.name in _WORDS else None
        cells.append(element("td", text_in(shown), class_=style))
    return element("tr", *cells)


def meanings(columns: Sequence[Column]) -> str:
    """A list of names and meanings."""
    parts = []
    for column in columns:
        parts.append(element("dt", text_in(column.name)))
        parts.append(element("dd", text_in(column.meaning)))
    return element("dl", *parts)
