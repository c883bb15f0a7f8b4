"""What the names of styles look like: the terminal's own colours, dark or light."""

from rich.style import Style

_DIM = Style(dim=True)
_BOLD = Style(bold=True)

STYLES: dict[str, Style] = {
    "": Style(),
    "bad": Style(color="red", bold=True),
    "brand": Style(color="green", bold=True),
    "checkpoints": Style(color="cyan"),
    "chunks": Style(color="green"),
    "computed": _DIM,
    "device": Style(color="blue"),
    "device-on-host": Style(color="blue", bgcolor="green"),
    "dim": _DIM,
    "frame": _DIM,
    "free": _DIM,
    "good": Style(color="green"),
    "host": Style(color="green"),
    "key": Style(color="cyan"),
    "load": Style(color="magenta"),
    "miss": Style(color="magenta"),
    "note": Style(),
    "stale": _DIM,
    "title": _BOLD,
    "value": _BOLD,
    "warning": Style(color="red"),
}
