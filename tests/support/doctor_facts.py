"""Stated facts for the doctor's checks: a good machine, and command lines as text."""

import dataclasses
import shlex

from kvcellar.doctor.checks import ALL_CHECKS
from kvcellar.doctor.command_line import read_command_line
from kvcellar.doctor.facts import gather
from kvcellar.doctor.finding import Severity
from kvcellar.doctor.machine import Machine, Room
from kvcellar.doctor.software import Software
from kvcellar.tiers.machine import MachineMemory

GIB = 2**30
GOOD_MACHINE = Machine(
    memory=MachineMemory(total_bytes=1024 * GIB, available_bytes=900 * GIB),
    shared_memory=Room(512 * GIB, 500 * GIB),
    huge_pages="madvise",
    node_bytes={0: 1024 * GIB},
)
GOOD_SOFTWARE = Software(
    "3.11.7", {"vllm": "0.32.0", "torch": "2.13.0", "numpy": "2.3.5"}, {}
)
CHECKS = {check.name: check for check in ALL_CHECKS}
CONNECTOR = (
    '"kv_connector": "CellarConnector", '
    '"kv_connector_module_path": "kvcellar.integrations.vllm", "kv_role": "kv_both", '
    '"kv_load_failure_policy": "recompute"'
)


def machine(**changes):
    """The good machine, with changes."""
    return dataclasses.replace(GOOD_MACHINE, **changes)


def software(environment=None, **versions):
    """The good software, with other versions and these environment variables."""
    return Software("3.11.7", GOOD_SOFTWARE.versions | versions, environment or {})


def own_command(model="llama-3.1-8b", options="", **extra):
    """A ``vllm serve`` line that puts these settings into our connector."""
    import json

    content = f'{{{CONNECTOR}, "kv_connector_extra_config": {json.dumps(extra)}}}'
    return f"vllm serve {model} --kv-transfer-config {shlex.quote(content)} {options}"


def facts_of(command="", *, on=GOOD_MACHINE, using=GOOD_SOFTWARE, server=None, **hints):
    """Facts about a command line, as the doctor gathers them.

    Args:
        command: what stands after ``--``; empty for none.
        hints: ``device_memory_bytes`` and ``prompt_tokens``.
    """
    configuration = None
    if command:
        configuration = read_command_line(shlex.split(command))
        configuration = dataclasses.replace(configuration, **hints)
    return gather(on, using, configuration, server)


def findings(check, facts):
    """All that one check finds, by its name."""
    return list(CHECKS[check].find(facts))


def only(check, facts, severity):
    """The one finding of a check, which must be of this severity."""
    (finding,) = findings(check, facts)
    assert Severity[severity.upper()] is finding.severity, finding
    return finding


def is_fine(check, facts):
    """Whether a check applies and finds nothing to tell."""
    found = findings(check, facts)
    return bool(found) and all(f.severity is Severity.OK for f in found)
