"""Versions: where they are read, and what they are compared with."""

import re
import tomllib
from pathlib import Path

import pytest
from doctor_facts import (
    CHECKS,
    facts_of,
    findings,
    is_fine,
    only,
    own_command,
    software,
)

from kvcellar.doctor.software import read_software
from kvcellar.versions import (
    ENGINE_FIRST,
    ENGINE_REQUIREMENT,
    OLDEST_PYTHON,
    OLDEST_TORCH,
    is_at_least,
)

PROJECT = tomllib.loads(
    (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


def test_bounds_are_those_of_the_package():
    """The ranges that the doctor knows are the ones that pyproject.toml asks for."""
    extras = PROJECT["optional-dependencies"]
    assert [ENGINE_REQUIREMENT] == extras["vllm"]
    assert [f"torch>={OLDEST_TORCH}"] == extras["torch"]
    assert f">={OLDEST_PYTHON}" == PROJECT["requires-python"]


def test_this_python_is_read():
    """The running interpreter and numpy, without importing an engine."""
    found = read_software()
    assert re.fullmatch(r"3\.\d+\.\d+.*", found.python)
    assert is_at_least(found.versions["numpy"], "2.0")


def test_engine_under_another_distribution_name_has_a_version():
    """vLLM's CPU build, whose distribution is not called vllm, tells its version."""
    pytest.importorskip("vllm")
    assert is_at_least(read_software().versions["vllm"], ENGINE_FIRST)


@pytest.mark.parametrize(
    ("version", "severity"),
    [("0.31.2", "error"), ("0.34.0", "error"), ("", "warning")],
)
def test_untested_engine_is_told(version, severity):
    """Outside the range is what a start refuses; a silent one may be right."""
    told = findings("versions", facts_of(using=software(vllm=version)))[0]
    assert severity == told.severity.word
    assert ENGINE_REQUIREMENT in told.remedy
    assert CHECKS["versions"].refuses


def test_an_untested_engine_that_is_allowed_is_a_warning():
    """With the connector's own setting in the command line."""
    command = own_command(host_memory="8GiB", allow_untested_vllm=True)
    told = findings("versions", facts_of(command, using=software(vllm="0.34.0")))[0]
    assert "warning" == told.severity.word
    assert "allow_untested_vllm" not in told.remedy


def test_tested_versions_are_fine():
    """Nothing is told of what is tested; no engine at all is an error."""
    assert is_fine("versions", facts_of())
    assert is_fine("engine", facts_of())
    old = facts_of(using=software(torch="2.5.1"))
    assert "torch is 2.5.1" == findings("versions", old)[0].what


def test_missing_engine_is_an_error():
    """With how to install it."""
    from kvcellar.doctor.software import Software

    facts = facts_of(using=Software("3.11.7", {}, {}))
    assert "pip install" in only("engine", facts, "error").remedy
    assert is_fine("versions", facts)


def test_old_python_is_an_error():
    """3.10 lacks what kvcellar is written in."""
    from kvcellar.doctor.software import Software

    facts = facts_of(using=Software("3.10.9", {"vllm": "0.32.0"}, {}))
    assert "Python 3.10.9" in findings("versions", facts)[0].what
