"""What was replayed on what: everything that all configurations share."""

from dataclasses import dataclass

from kvcellar.replay.grid import GridModel
from kvcellar.replay.grid_trace import TraceFacts
from kvcellar.replay.presets_choice import ChosenCosts
from kvcellar.replay.readers import Arrivals


@dataclass(frozen=True, slots=True)
class Setting:
    """Trace, model and speeds.

    Attributes:
        trace_name: file or folder, without its path.
        limit: only so many requests were played; None for all.
        speed: arrivals came so many times as fast.
        tokenizer: of a trace of texts; None where bytes were counted.
        systems: who runs host memory in the configurations.
    """

    trace_name: str
    facts: TraceFacts
    arrivals: Arrivals
    limit: int | None
    speed: float
    tokenizer: str | None
    model: GridModel
    costs: ChosenCosts
    systems: tuple[str, ...]

    @property
    def num_gpus(self) -> int:
        """GPUs that share each layer."""
        return self.model.model.options.tensor_parallel
