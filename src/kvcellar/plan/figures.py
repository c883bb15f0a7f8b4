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
    timing: Timing | None
    advice: ModeAdvice

    @property
    def shape(self) -> ServerShape:
        """How ranks are spread."""
        return self.request.shape
