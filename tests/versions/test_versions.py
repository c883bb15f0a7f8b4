"""Which versions are served, how they compare, and what is said of the others."""

import re
from pathlib import Path

import pytest

from kvcellar.config import SETTING_KEYS
from kvcellar.versions import (
    ALLOW_KEY,
    ENGINE_END,
    ENGINE_FIRST,
    ENGINE_LAST,
    engine_problem,
    is_at_least,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("version", "bound", "expected"),
    [
        ("0.32.0", "0.32", True),
        ("0.32.1rc1", "0.33", False),
        ("2.13.0+cpu", "2.6", True),
        ("2.5.1", "2.6", False),
        ("0.9", "0.32", False),
        ("1.0", "0.33", True),
        ("dev", "0.32", False),
    ],
)
def test_versions_compare_by_number(version, bound, expected):
    """Ten comes after nine, and suffixes do not matter."""
    assert expected is is_at_least(version, bound)


@pytest.mark.parametrize(
    "version", ["0.32", "0.32.0+cpu", "0.32.9", "0.33.0", "0.33.1.dev7+gabc"]
)
def test_the_whole_range_is_served(version):
    """Patch releases, builds and previews of the tested versions are fine."""
    assert engine_problem(version) is None


@pytest.mark.parametrize("version", ["0.31.2", "0.9.1", "0.34.0", "0.34.0rc1", "1.0"])
def test_others_are_refused_in_one_sentence(version):
    """It names the version, the range, and both ways out."""
    problem = engine_problem(version)
    assert problem is not None
    assert problem.refuses
    text = problem.sentence
    named = (version, ENGINE_FIRST, ENGINE_END, "install vllm", ALLOW_KEY)
    assert [] == [part for part in named if part not in text]
    assert "\n" not in text
    assert not text.endswith(".")


def test_the_setting_turns_the_refusal_into_a_warning():
    """Then there is no more talk of the setting."""
    problem = engine_problem("0.34.0", allows_untested=True)
    assert problem is not None
    assert not problem.refuses
    assert ALLOW_KEY not in problem.sentence
    assert ALLOW_KEY in SETTING_KEYS


@pytest.mark.parametrize("version", ["", "dev"])
def test_a_version_that_cannot_be_read_is_only_told(version):
    """It may well be one that is tested."""
    problem = engine_problem(version, engine="the server's vllm")
    assert problem is not None
    assert not problem.refuses
    assert problem.what.startswith("the server's vllm")


@pytest.mark.parametrize(
    "page", ["README.md", "docs/README.md", "docs/quickstart.md", "docs/engines.md"]
)
def test_the_pages_say_the_same_range(page):
    """Oldest and newest version stand in the pages as in the code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    told = re.findall(r"vLLM (0\.\d+) (?:and|to) (0\.\d+)", text)
    assert {(ENGINE_FIRST, ENGINE_LAST)} == set(told)


def test_the_make_target_tests_the_newest():
    """``make check-vllm`` without a version takes one of the newest supported."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (default,) = re.findall(r"^VLLM \?= (\S+)$", text, re.MULTILINE)
    assert default.startswith(f"{ENGINE_LAST}.")
