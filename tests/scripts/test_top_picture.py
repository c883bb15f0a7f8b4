"""The picture in the docs is what the program draws now."""

import html
import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("textual")

SCRIPT = Path(__file__).parents[2] / "scripts" / "top_picture.py"


@pytest.fixture(scope="module")
def script():
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("top_picture", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(svg):
    """What can be read in a picture."""
    return html.unescape(
        re.sub(r"<style>.*?</style>|<[^>]*>", " ", svg, flags=re.DOTALL)
    ).split()


def test_the_picture_is_up_to_date(script):
    """Else: .venv/bin/python scripts/top_picture.py."""
    drawn = script.svg()
    assert words(script.PICTURE.read_text(encoding="utf-8")) == words(drawn)
    assert "served" in words(drawn)


def test_the_picture_fetches_nothing(script):
    """Whoever looks at the docs asks no other server."""
    addresses = re.findall(r"url\(\s*[\"']?(?!#)[^)]*", script.svg())
    assert [] == addresses
