"""The report of a whole grid: plain values, ready for any output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kvcellar
from kvcellar.replay.grid import GridModel
from kvcellar.replay.grid_cell import GridCell, Played
from kvcellar.replay.presets_choice import COST_NAMES, ChosenCosts
from kvcellar.replay.report.assumptions import assumptions_of
from kvcellar.replay.report.columns import Result, Row, row_of
from kvcellar.replay.report.remarks import remarks_of
from kvcellar.replay.report.setting import Setting

__all__ = ["Report", "Setting", "make_report"]

FORMAT_NAME = "kvcellar-replay"
FORMAT_VERSION = 1
_SPEED_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the outputs say.

    Attributes:
        facts: trace, model, speeds and server, as JSON has them.
        assumptions: sentences.
        remarks: what a reader should know about these figures; may be empty.
        rows: one per configuration, see ``columns``.
    """

    facts: dict[str, Any]
    assumptions: tuple[str, ...]
    remarks: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def is_timeless(self) -> bool:
        """Whether there are no times."""
        return self.facts["costs"] is None

    def as_dict(self) -> dict[str, Any]:
        """One object, in a fixed order."""
        return {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "kvcellar_version": kvcellar.__version__,
            **self.facts,
            "assumptions": list(self.assumptions),
            "remarks": list(self.remarks),
            "configurations": [dict(row) for row in self.rows],
        }


def make_report(
    setting: Setting,
    cells: Sequence[GridCell],
    played: Sequence[Played],
    offline: Sequence[float],
) -> Report:
    """Put the results into figures and words.

    Args:
        offline: of each cell, the hit ratio that no order of eviction exceeds.
    """
    num_gpus, is_timeless = setting.num_gpus, setting.costs.is_timeless
    results = [
        Result(cell, one, best, num_gpus, is_timeless)
        for cell, one, best in zip(cells, played, offline, strict=True)
    ]
    rows = tuple(row_of(result) for result in results)
    facts = {
        "trace": _trace(setting),
        "model": _model(setting.model),
        "costs": _costs(setting.costs),
        "server": {
            "max_num_seqs": setting.model.limits.max_num_seqs,
            "step_tokens": setting.model.limits.step_tokens,
        },
    }
    return Report(facts, assumptions_of(setting), remarks_of(setting, rows), rows)


def _trace(setting: Setting) -> dict[str, Any]:
    facts, arrivals = setting.facts, setting.arrivals
    return {
        "name": setting.trace_name,
        "format": facts.format_name,
        "block_tokens": facts.block_tokens,
        "num_requests": facts.num_requests,
        "num_skipped": facts.num_skipped,
        "prompt_tokens": facts.prompt_tokens,
        "output_tokens": facts.output_tokens,
        "span_seconds": round(facts.span_seconds, 3),
        "limit": setting.limit,
        "speed": setting.speed,
        "jitter_seconds": arrivals.jitter_seconds,
        "seed": arrivals.seed,
    }


def _model(model: GridModel) -> dict[str, Any]:
    options = model.model.options
    return {
        "name": model.model.name,
        "cache_dtype": model.model.cache_dtype,
        "tensor_parallel": options.tensor_parallel,
        "chunk_tokens": model.model.layout.chunk_tokens,
        "resume_tokens": model.unit_tokens,
        "row_bytes": model.model.row_bytes,
        "num_groups": len(model.model.layout.groups),
    }


def _costs(chosen: ChosenCosts) -> dict[str, Any] | None:
    if chosen.is_timeless:
        return None
    costs = {
        name: round(getattr(chosen.costs, name), _SPEED_DIGITS) for name in COST_NAMES
    }
    return {**costs, "preset": chosen.preset or None, "sources": dict(chosen.sources)}
