"""The size guide counts code lines only, and complains above its limits."""

import importlib.util
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "size_guide.py"

SOURCE = '''"""Module docstring
of two lines."""

# a comment
import os  # counted


def function(
    argument,
):
    """Not counted."""
    text = """counted
    twice"""

    return text
'''


@pytest.fixture(scope="module")
def size_guide():
    spec = importlib.util.spec_from_file_location("size_guide", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_blank_lines_comments_and_docstrings_are_free(size_guide):
    """The counted lines are the import, the signature and the three of the body."""
    assert sorted(size_guide.code_lines(SOURCE)) == [5, 8, 9, 10, 12, 13, 15]


def test_a_file_and_its_functions_are_units(size_guide):
    """Functions are counted by their own code lines, under their own limit."""
    found = list(size_guide.units("a.py", SOURCE))
    assert [(u.name, u.num_lines) for u in found] == [
        ("a.py", 7),
        ("a.py::function", 6),
    ]


def test_only_units_above_the_limit_are_complained_about(size_guide):
    """A unit at its limit passes; one line more fails."""
    limit = size_guide.Limit(review=40, fail=60)
    at, above = size_guide.Unit("at", 60, limit), size_guide.Unit("above", 61, limit)
    complaints = size_guide.too_large([at, above], {})
    assert len(complaints) == 1
    assert "above: 61" in complaints[0]


def test_exceptions_silence_and_must_stay_needed(size_guide):
    """An exception silences its unit, and is itself reported when it is not needed."""
    limit = size_guide.Limit(review=40, fail=60)
    above = size_guide.Unit("above", 61, limit)
    assert size_guide.too_large([above], {"above": "a table"}) == []
    stale = size_guide.too_large([], {"above": "a table"})
    assert "no longer needs" in stale[0]
