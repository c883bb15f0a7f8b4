"""The page's style sheet: light and dark, no outside resource."""

from kvcellar.replay.report.curves import NUM_COLOURS

# Name: colour on a light page, colour on a dark one.
_COLOURS = {
    "bg": ("#ffffff", "#15181b"),
    "panel": ("#f6f7f8", "#1d2125"),
    "ink": ("#1c2024", "#e8eaed"),
    "soft": ("#5b6570", "#a3adb8"),
    "line": ("#d8dde2", "#363d44"),
    "device": ("#2a78d6", "#3987e5"),
    "host": ("#1baf7a", "#21a876"),
    "no-checkpoint": ("#eb6834", "#e07a45"),
    "storing": ("#e3a400", "#c98f00"),
    "evicted": ("#d03b3b", "#e05c5c"),
    "in-progress": ("#b9679b", "#c47fae"),
    "never-seen": ("#aab2ba", "#69737d"),
    "partial": ("#ced4da", "#4a525a"),
    "c0": ("#2a78d6", "#3987e5"),
    "c1": ("#eb6834", "#e8713c"),
    "c2": ("#1baf7a", "#21b07c"),
    "c3": ("#b07d00", "#c98500"),
    "c4": ("#d0528a", "#dc6a97"),
    "c5": ("#008300", "#35a335"),
    "c6": ("#4a3aa7", "#9085e9"),
    "c7": ("#e34948", "#e66767"),
}

# Piece of a bar: its colour.
_PIECES = {
    "device": "device",
    "host": "host",
    "no_checkpoint": "no-checkpoint",
    "storing": "storing",
    "evicted": "evicted",
    "in_progress": "in-progress",
    "never_seen": "never-seen",
    "partial": "partial",
    "alive": "device",
    "dead": "never-seen",
    "superseded": "never-seen",
}

_RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 1180px; background: var(--bg);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .25rem; }
p { margin: .25rem 0 .75rem; }
.soft { color: var(--soft); }
.remark { background: var(--panel); border-left: 4px solid var(--storing);
  padding: .5rem .75rem; margin: .5rem 0; }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
.charts svg { max-width: 620px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; }
svg .chart-title { fill: var(--ink); font-size: 13px; font-weight: 600; }
svg .bar-label { fill: var(--ink); text-anchor: end; }
svg .tick-y { text-anchor: end; }
svg .tick-x, svg .middle { text-anchor: middle; }
.grid { stroke: var(--line); stroke-width: 1; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 7 4; }
.curve.ref { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 2 4; }
.curve.ref.dashed { stroke-dasharray: 9 3 2 3; }
.point { stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .25rem 0 .75rem;
  padding: 0; list-style: none; }
.legend svg { display: inline-block; width: 34px; height: 14px; vertical-align: -2px;
  margin-right: .4rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); }
.bars { overflow-x: auto; }
.bars svg { min-width: 720px; }
table { border-collapse: collapse; font-size: 13px;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { background: var(--panel); vertical-align: bottom; font-weight: 600; }
td.word, th.word { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { font-family: ui-monospace, monospace; font-size: 13px; }
dd { margin: 0; }
@media (max-width: 700px) { dl { grid-template-columns: 1fr; }
  dd { margin-left: 1rem; } }
"""


def style_sheet() -> str:
    """All rules."""
    curves = "".join(
        f".c{i} {{ stroke: var(--c{i}); }}\n.point.c{i} {{ fill: var(--c{i}); }}\n"
        for i in range(NUM_COLOURS)
    )
    pieces = "".join(
        f".piece.{name} {{ fill: var(--{colour}); }}\n"
        for name, colour in _PIECES.items()
    )
    return (
        f":root {{ color-scheme: light dark; {_variables(0)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}"
        f"{_RULES}{curves}.point.hollow {{ fill: var(--bg); }}\n{pieces}"
    )


def _variables(theme: int) -> str:
    return " ".join(f"--{name}: {pair[theme]};" for name, pair in _COLOURS.items())
