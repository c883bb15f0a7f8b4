"""All figures of a plan, before anything is said about them."""

from dataclasses import dataclass

from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.models import ModelLayout
from kvcellar.plan.device import DevicePlan
from kvcellar.plan.groups import GroupFacts
from kvcellar.plan.host import HostPlan
from kvcellar.plan.modes import ModeAdvice
from kvcellar.plan.request import PlanRequest
from kvcellar.plan.shape import ServerShape
from kvcellar.plan.timing import Timing
from kvcellar.plan.units import Units


@dataclass(frozen=True, slots=True)
class Figures:
    """What follows from the model, the sizes and the speeds.

    Attributes:
        request: what was asked.
        model: the engine's layout of one rank of each stage.
        layouts: what is kept on one rank of each pipeline stage.
        max_model_tokens: the longest context.
        prompt_tokens: of the typical prompt.
        device: None if the device's memory is not known.
        num_at_once: requests of the typical prompt that run at once, on all replicas:
            those that were asked for, or as many as the device has room for if that is
            less; None if nobody says.
        timing: None if speeds are not known.
    """

    request: PlanRequest
    model: ModelLayout
    layouts: tuple[CacheLayout, ...]
    max_model_tokens: int
    prompt_tokens: int
    units: Units
    groups: tuple[GroupFacts, ...]
    host: HostPlan
    device: DevicePlan | None
    num_at_once: int | None
    timing: Timing | None
    advice: ModeAdvice

    @property
    def shape(self) -> ServerShape:
        """How ranks are spread."""
        return self.request.shape

    @property
    def mode_to_run(self) -> str:
        """What is recommended; what was asked for where either may find more."""
        asked = self.request.asked_mode
        return asked if asked and self.advice.is_close else self.advice.mode
