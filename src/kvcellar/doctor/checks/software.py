"""Versions of what is installed."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, ok, warning
from kvcellar.doctor.software import (
    ENGINE_RANGE,
    OLDEST_PYTHON,
    OLDEST_TORCH,
    is_at_least,
)

_INSTALL = "pip install 'kvcellar[vllm]'"


def find_engine(facts: Facts) -> Iterator[Finding]:
    """Whether vLLM is there at all."""
    if "vllm" in facts.software.versions:
        yield ok("vllm is installed")
        return
    yield error(
        "vllm is not installed in this Python",
        "kvcellar is a connector of vLLM and serves nothing by itself",
        f"install it, for instance with {_INSTALL}",
    )


def find_versions(facts: Facts) -> Iterator[Finding]:
    """Python, vLLM and torch against what is tested."""
    software = facts.software
    if not is_at_least(software.python, OLDEST_PYTHON):
        yield error(
            f"this is Python {software.python}",
            f"kvcellar needs Python {OLDEST_PYTHON} or later",
            "install a newer Python and kvcellar into it",
        )
    engine = software.versions.get("vllm")
    if engine is not None:
        yield from engine_findings(engine, "vllm")
    torch = software.versions.get("torch")
    if torch and not is_at_least(torch, OLDEST_TORCH):
        yield error(
            f"torch is {torch}",
            f"kvcellar copies with torch {OLDEST_TORCH} or later",
            "install the torch that your vllm asks for",
        )
    known = {"python": software.python, **software.versions}
    yield ok(", ".join(f"{name} {version}" for name, version in known.items()))


def engine_findings(version: str, what: str) -> Iterator[Finding]:
    """Compare a version of vLLM with the range that is tested."""
    first, end = ENGINE_RANGE
    why = f"kvcellar is tested with vLLM {first} up to, not including, {end}"
    remedy = f"install vllm>={first},<{end}, or a kvcellar made for yours"
    if not version:
        yield warning(f"{what} does not tell its version", why, remedy)
    elif not is_at_least(version, first):
        yield error(f"{what} is version {version}", why, remedy)
    elif is_at_least(version, end):
        yield warning(f"{what} is version {version}", why, remedy)


CHECKS = (
    Check("engine", "is vLLM installed?", find_engine, refuses=True),
    Check("versions", "are the versions those that are tested?", find_versions),
)
