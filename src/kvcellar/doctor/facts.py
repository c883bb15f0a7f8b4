"""All that checks may look at."""

from dataclasses import dataclass

from kvcellar.doctor.configuration import Configuration
from kvcellar.doctor.machine import Machine
from kvcellar.doctor.server import Server
from kvcellar.doctor.sizing import Sizing, size_up
from kvcellar.doctor.software import Software


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine, and what is known of a configuration and of a running server.

    Attributes:
        configuration: what would be started; None if nothing is asked about.
        sizing: figures of its model; None where they cannot be worked out.
        sizing_problem: why they cannot; empty if they can, or no model is given.
        server: a running server; None if nothing is asked about.
    """

    machine: Machine
    software: Software
    configuration: Configuration | None = None
    sizing: Sizing | None = None
    sizing_problem: str = ""
    server: Server | None = None


def gather(
    machine: Machine,
    software: Software,
    configuration: Configuration | None = None,
    server: Server | None = None,
) -> Facts:
    """Put facts together, with the figures that follow from them."""
    sizing, problem = None, ""
    if configuration is not None:
        sizing, problem = size_up(configuration, software.environment)
    return Facts(machine, software, configuration, sizing, problem, server)
