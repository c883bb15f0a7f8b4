"""The doctor's checks that refuse a hopeless start, before vLLM is started."""

import logging

from kvcellar.doctor.checks import ALL_CHECKS
from kvcellar.doctor.command_line import with_config_file
from kvcellar.doctor.configuration import configuration_of
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Severity
from kvcellar.doctor.machine import Machine, read_this_machine
from kvcellar.doctor.report import examine
from kvcellar.doctor.software import Software, read_software
from kvcellar.errors import ConfigError
from kvcellar.serve.command import ServeSettings

logger = logging.getLogger(__name__)

_REFUSING = tuple(check for check in ALL_CHECKS if check.refuses)


def check_settings(
    settings: ServeSettings,
    machine: Machine | None = None,
    software: Software | None = None,
) -> None:
    """Refuse settings that vLLM or the connector could only fail on.

    Warnings of the same checks are logged. Sizes that depend on the model are left to
    the connector: it knows the engine's own blocks.

    Args:
        settings: what is to be started.
        machine: None reads this one.
        software: None looks at this Python.

    Raises:
        ConfigError: the first thing that is wrong, and what to do about it.
    """
    arguments, _ = with_config_file(settings.vllm_arguments)
    facts = Facts(
        machine or read_this_machine(),
        software or read_software(),
        configuration_of(settings, arguments),
    )
    report = examine(facts, _REFUSING)
    for _, finding in report.of(Severity.ERROR):
        raise ConfigError(f"{finding.what}: {finding.why}; {finding.remedy}")
    for _, finding in report.of(Severity.WARNING):
        logger.warning("%s: %s; %s", finding.what, finding.why, finding.remedy)
