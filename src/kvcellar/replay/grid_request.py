"""What a user asks of a replay, and doing it: from options to a report."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kvcellar.errors import ConfigError
from kvcellar.layout.models import model_layout
from kvcellar.replay.grid import GridAxes, GridModel, make_cells, serving_layout
from kvcellar.replay.grid_run import OnProgress, default_processes, run_grid
from kvcellar.replay.grid_trace import TraceFacts, cut_trace, facts_of
from kvcellar.replay.offline.bound import offline_hit_ratios
from kvcellar.replay.presets_choice import CostChoice, choose_costs
from kvcellar.replay.readers import Arrivals, open_trace
from kvcellar.replay.report.report import Report, Setting, make_report
from kvcellar.replay.server import ServerLimits
from kvcellar.replay.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceChoice:
    """Which trace, and what to make of it.

    Attributes:
        format: None recognises it.
        tokenizer: for text; None counts bytes.
        block_tokens: tokens per prefix id; None takes the format's own.
        limit: requests to play; None for all.
        speed: arrivals come so many times as fast.
    """

    path: str
    format: str | None = None
    skip_bad: bool = False
    tokenizer: str | None = None
    block_tokens: int | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)
    limit: int | None = None
    speed: float = 1.0

    def open(self) -> Trace:
        """Read it.

        Raises:
            TraceError, ConfigError: as ``open_trace`` and ``cut_trace``.
        """
        trace = open_trace(
            self.path,
            format=self.format,
            skip_bad=self.skip_bad,
            tokenizer=self.tokenizer,
            block_tokens=self.block_tokens,
            arrivals=self.arrivals,
        )
        return cut_trace(trace, self.limit, self.speed)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model, and how it is served; see ``model_layout``."""

    model: str
    cache_dtype: str = "auto"
    block_tokens: int | None = None
    tensor_parallel: int = 1


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Everything that is asked for.

    Attributes:
        num_processes: None takes one per core.
    """

    trace: TraceChoice
    model: ModelChoice
    axes: GridAxes
    costs: CostChoice
    limits: ServerLimits
    num_processes: int | None = None


OnStart = Callable[[int, int], OnProgress]
"""Called with the number of cells and of requests when the grid begins."""


def run_request(request: ReplayRequest, on_start: OnStart) -> Report:
    """Check everything, read the trace, play the grid.

    Raises:
        CellarError: what is asked for cannot be done; nothing has been played then.
    """
    _check_numbers(request)
    chosen = request.model
    model = model_layout(
        chosen.model,
        cache_dtype=chosen.cache_dtype,
        block_tokens=chosen.block_tokens,
        tensor_parallel=chosen.tensor_parallel,
    )
    costs = choose_costs(request.costs, model.name, chosen.tensor_parallel)
    trace = request.trace.open()
    facts = _facts(trace, request.trace.path)
    layout = serving_layout(model)
    fixed = GridModel(model, layout, trace.block_tokens, costs.costs, request.limits)
    cells = make_cells(request.axes, fixed)
    num_processes = request.num_processes or default_processes()
    on_progress = on_start(len(cells), facts.num_requests)
    played = run_grid(trace, cells, num_processes, on_progress)
    setting = Setting(
        trace_name=Path(request.trace.path).name,
        facts=facts,
        arrivals=request.trace.arrivals,
        limit=request.trace.limit,
        speed=request.trace.speed,
        tokenizer=request.trace.tokenizer,
        model=fixed,
        costs=costs,
        systems=request.axes.systems,
    )
    return make_report(setting, cells, played, offline_hit_ratios(trace, cells))


def _facts(trace: Trace, path: str) -> TraceFacts:
    facts = facts_of(trace)
    if facts.num_requests == 0:
        raise ConfigError(
            f"trace={path!r} holds no request, so nothing can be replayed"
        )
    return facts


def _check_numbers(request: ReplayRequest) -> None:
    numbers = {
        "max_num_seqs": request.limits.max_num_seqs,
        "step_tokens": request.limits.step_tokens,
        "processes": 1 if request.num_processes is None else request.num_processes,
    }
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(f"{name}={value} is not possible; use 1 or more")
