"""Building marked-up text: elements, attributes, escaping."""

from html import escape


def element(name: str, /, *children: str, **attributes: object) -> str:
    """One element; children are marked up already.

    Attribute names may end with ``_`` (``class_``) and use ``_`` for ``-``. Numbers are
    written with at most two decimals, so that the text is the same everywhere.
    """
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(children)
    return f"<{name}{text}>{inner}</{name}>"


def text_in(content: str) -> str:
    """Escape text for use between tags."""
    return escape(content, quote=False)


def path_through(points: list[tuple[float, float]]) -> str:
    """The ``d`` of a line through points, in pixels."""
    steps = [f"{_plain(x)} {_plain(y)}" for x, y in points]
    return "M" + " L".join(steps)


def _plain(value: object) -> str:
    if isinstance(value, float):
        text = f"{value:.2f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    return str(value)
