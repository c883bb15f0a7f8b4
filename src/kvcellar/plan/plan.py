"""A whole plan: the figures, what is wrong, what they stand on, and what to run."""

from dataclasses import dataclass

from kvcellar.plan.commands import Commands, commands_for
from kvcellar.plan.figures import Figures
from kvcellar.plan.findings import Finding, findings_of
from kvcellar.plan.make import make_figures
from kvcellar.plan.notes import notes_of
from kvcellar.plan.products import device_products, host_products
from kvcellar.plan.request import PlanRequest


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is known before a start.

    Attributes:
        products: the multiplications behind host and device memory.
        commands: the recommended configuration.
        findings: what is wrong with the settings, the worst first.
        notes: what the figures stand on.
    """

    figures: Figures
    products: tuple[str, ...]
    commands: Commands
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def make_plan(request: PlanRequest) -> Plan:
    """Work everything out. Pure; takes milliseconds.

    Raises:
        ConfigError: a setting cannot work; the message says which, and what to do.
        IncompatibleError: the model's architecture is not known.
    """
    figures = make_figures(request)
    shape, device = figures.shape, figures.device
    products = host_products(figures.host, shape)
    if device is not None:
        products += device_products(device, shape)
    return Plan(
        figures=figures,
        products=products,
        commands=commands_for(figures),
        findings=findings_of(figures),
        notes=notes_of(figures),
    )
