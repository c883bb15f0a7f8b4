"""All that checks may look at."""

from dataclasses import dataclass, replace

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
    if configuration is not None and configuration.prompt_tokens is None and server:
        usual = server.mean_prompt_tokens
        configuration = replace(configuration, prompt_tokens=usual)
    if configuration is not None:
        sizing, problem = size_up(configuration, software.environment)
    if sizing is not None and server is not None and sizing.device_bytes is None:
        sizing = replace(sizing, device_bytes=_device_bytes(sizing, server))
    return Facts(machine, software, configuration, sizing, problem, server)


def _device_bytes(sizing: Sizing, server: Server) -> int | None:
    """A running server's KV cache memory on one device, if it tells its blocks."""
    num_blocks = server.cache_settings.get("num_gpu_blocks", "")
    return int(num_blocks) * sizing.model.row_bytes if num_blocks.isdecimal() else None
