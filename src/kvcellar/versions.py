"""Which versions of what lies around kvcellar are supported, and how they compare.

The one place that knows the range. The connector, ``kvcellar doctor`` and
``kvcellar serve`` read it here; a test holds pyproject.toml and README.md against it.
"""

import re
from dataclasses import dataclass

ENGINE_FIRST = "0.32"
"""The oldest vLLM that is served; the whole test suite runs with it."""

ENGINE_LAST = "0.33"
"""The newest; the contract tests run with it, see docs/engines.md."""

ENGINE_END = "0.34"
"""The first version that nothing was run with."""

ENGINE_REQUIREMENT = f"vllm>={ENGINE_FIRST},<{ENGINE_END}"
OLDEST_TORCH = "2.6"
OLDEST_PYTHON = "3.11"

ALLOW_KEY = "allow_untested_vllm"


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """Why a version of vLLM is not one that was tested.

    Attributes:
        what: names the version.
        why: what is tested.
        remedy: what to do.
        refuses: whether a start is refused.
    """

    what: str
    why: str
    remedy: str
    refuses: bool

    @property
    def sentence(self) -> str:
        """All of it, in one sentence."""
        return f"{self.what}, and {self.why}; {self.remedy}"


def engine_problem(
    version: str, *, allows_untested: bool = False, engine: str = "vLLM"
) -> EngineProblem | None:
    """Compare a version of vLLM with the range that is tested; None if it is within.

    Wrong bytes are worse than no start: what was not tested is refused, unless the
    user asks for it. A version that cannot be read may be right, so it is only told.

    Args:
        version: as the package gives it; may be empty.
        allows_untested: whether the user has set ``ALLOW_KEY``.
        engine: whose version it is.
    """
    if not numbers_of(version):
        what = f"{engine} does not tell its version"
        remedy = f"install {ENGINE_REQUIREMENT}"
        return EngineProblem(what, _tested(), remedy, refuses=False)
    if is_at_least(version, ENGINE_FIRST) and not is_at_least(version, ENGINE_END):
        return None
    remedy = f"install {ENGINE_REQUIREMENT} or a kvcellar made for yours"
    if not allows_untested:
        remedy += f', or set "{ALLOW_KEY}" to true and check what it answers'
    what = f"{engine} is version {version}"
    return EngineProblem(what, _tested(), remedy, refuses=not allows_untested)


def is_at_least(version: str, bound: str) -> bool:
    """Whether a version's leading numbers are those of ``bound`` or later ones."""
    return numbers_of(version) >= numbers_of(bound)


def numbers_of(version: str) -> tuple[int, ...]:
    """The leading dotted numbers: ``(2, 13, 0)`` of ``"2.13.0+cpu"``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _tested() -> str:
    return (
        f"kvcellar is tested with vLLM {ENGINE_FIRST} up to, not including, "
        f"{ENGINE_END}"
    )
