"""Versions of what is installed."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, ok, warning
from kvcellar.versions import OLDEST_PYTHON, OLDEST_TORCH, engine_problem, is_at_least

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
        settings = facts.configuration.settings if facts.configuration else None
        allows = settings is not None and settings.allow_untested_vllm
        yield from engine_findings(engine, "vllm", allows_untested=allows)
    torch = software.versions.get("torch")
    if torch and not is_at_least(torch, OLDEST_TORCH):
        yield error(
            f"torch is {torch}",
            f"kvcellar copies with torch {OLDEST_TORCH} or later",
            "install the torch that your vllm asks for",
        )
    known = {"python": software.python, **software.versions}
    yield ok(", ".join(f"{name} {version}" for name, version in known.items()))


def engine_findings(
    version: str, what: str, *, allows_untested: bool = False
) -> Iterator[Finding]:
    """Compare a version of vLLM with the range that is tested.

    Args:
        version: as it tells it; may be empty.
        what: whose it is.
        allows_untested: whether the connector's settings allow any version.
    """
    problem = engine_problem(version, allows_untested=allows_untested, engine=what)
    if problem is not None:
        tell = error if problem.refuses else warning
        yield tell(problem.what, problem.why, problem.remedy)


CHECKS = (
    Check("engine", "is vLLM installed?", find_engine, refuses=True),
    Check(
        "versions",
        "are the versions those that are tested?",
        find_versions,
        refuses=True,
    ),
)
