"""What the pages say that a user will see, the code says too."""

import ast
import functools
import re

import pytest
from markdown_files import FILES, ROOT, name_of

from kvcellar.config import settings_from_extra_config
from kvcellar.errors import ConfigError
from kvcellar.metrics import INFO, METRICS
from kvcellar.reasons import MissReason

PAGES = {name_of(path): path.read_text(encoding="utf-8") for path in FILES}
HOLE = "\0"  # what a message fills in


@functools.cache
def spoken():
    """Every text in the code, with a hole where it fills something in."""
    texts = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", HOLE) for part in node.values)
                texts.append("".join(p if isinstance(p, str) else HOLE for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return tuple(texts)


def is_spoken(line):
    """Whether some text of the code has the line's pieces, in their order."""
    pieces = [re.escape(piece.strip()) for piece in line.split("...") if piece.strip()]
    pattern = re.compile(".*".join(pieces), re.DOTALL)
    return any(pattern.search(text) for text in spoken())


def refusals():
    text = PAGES["docs/troubleshooting.md"]
    _, _, rest = text.partition("| the line says |")
    table, _, _ = rest.partition("\n\n")
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


@pytest.mark.parametrize("line", refusals())
def test_refusals_that_are_explained_are_made(line):
    """A user searches the page for the words of the message."""
    assert is_spoken(line)


def test_the_refusal_that_is_quoted_is_the_real_one():
    """Word for word what the connector says of that setting."""
    with pytest.raises(ConfigError) as refusal:
        settings_from_extra_config({"host_memory": [1]})
    quoted = f"kvcellar.errors.ConfigError: {refusal.value}\n"
    assert quoted in PAGES["docs/troubleshooting.md"]


def test_refusals_were_found():
    """The table is where it is looked for, and a made-up line is not in the code."""
    assert len(refusals()) > 8
    assert not is_spoken("host memory of ... is too blue")


@pytest.mark.parametrize("page", PAGES)
def test_metrics_that_are_named_are_exported(page):
    """No page sends anybody to a metric that there is not; the version is a field."""
    exported = {name for metric in METRICS.values() for name in metric.exported_names()}
    named = set(re.findall(r"\bkvcellar_[a-z_]*[a-z]\b(?![_(*])", PAGES[page]))
    assert named - {"kvcellar_version"} <= exported | METRICS.keys() | {INFO}


@pytest.mark.parametrize("page", ["docs/operate.md", "docs/troubleshooting.md"])
def test_reasons_that_are_named_are_reasons(page):
    """Words behind ``reason`` or ``misses with reason`` are those of the counter."""
    named = set(re.findall(r"reason `(\w+)`", PAGES[page]))
    assert named <= {str(reason) for reason in MissReason}


def test_every_alert_has_its_first_step():
    """The operating guide names each rule of the file, and no other."""
    rules = (ROOT / "dashboards" / "alerts.yml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"alert: (\w+)", rules))
    assert alerts == set(
        re.findall(r"^\| `(Kvcellar\w+)`", PAGES["docs/operate.md"], re.M)
    )
