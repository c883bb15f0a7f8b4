"""What was measured: figures, and the speeds that ``kvcellar replay --costs`` reads."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kvcellar
from kvcellar.bench.copies import CopySpeeds
from kvcellar.bench.host_memory import HostMemorySpeed
from kvcellar.bench.planner import PlannerSpeed
from kvcellar.bench.serving import ServingSpeed
from kvcellar.errors import ConfigError

FORMAT_NAME = "kvcellar-bench"
FORMAT_VERSION = 1
_SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A server and what it serves.

    Attributes:
        max_model_tokens: prompt and answer together.
    """

    url: str
    name: str
    max_model_tokens: int


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything that was measured.

    Attributes:
        model_name: whose pages and planning were measured.
        page_bytes: of its chunks, in one layer.
        server: None where none was asked, as ``serving``.
    """

    model_name: str
    page_bytes: int
    copies: CopySpeeds
    host_memory: HostMemorySpeed
    planner: PlannerSpeed
    server: ServedModel | None = None
    serving: ServingSpeed | None = None

    @property
    def speeds(self) -> dict[str, float]:
        """By the names that ``--costs`` reads; without a server only the copies."""
        copy = self.copies.of(self.page_bytes)
        speeds = {
            "load_bytes_per_second": copy.load_bytes_per_second,
            "store_bytes_per_second": copy.store_bytes_per_second,
        }
        if self.serving is not None:
            names = (
                "prefill_tokens_per_second",
                "decode_seconds_per_token",
                "step_seconds",
            )
            speeds = {name: getattr(self.serving, name) for name in names} | speeds
        return {name: _rounded(value) for name, value in speeds.items()}

    def to_json(self) -> str:
        """One JSON object."""
        content: dict[str, Any] = {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "kvcellar_version": kvcellar.__version__,
            **asdict(self),
            "speeds": self.speeds,
        }
        return json.dumps(content, indent=2, allow_nan=False)


def write_speeds(result: BenchResult, path: str) -> None:
    """Write the speeds, over those of an earlier run.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(result.speeds, indent=2, allow_nan=False) + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"output={path!r} cannot be written: {error.strerror}"
        ) from error


def _rounded(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
