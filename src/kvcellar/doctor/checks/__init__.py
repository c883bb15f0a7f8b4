"""Every check, in the order in which they are asked."""

from kvcellar.doctor.checks import (
    connector,
    context,
    environment,
    lengths,
    memory,
    misses,
    others,
    parallel,
    prefix,
    running,
    serving,
    sizes,
    software,
    system,
    traffic,
)
from kvcellar.doctor.checks.check import Check

__all__ = ["ALL_CHECKS", "Check"]

ALL_CHECKS: tuple[Check, ...] = (
    *software.CHECKS,
    *serving.CHECKS,
    *connector.CHECKS,
    *others.CHECKS,
    *prefix.CHECKS,
    *parallel.CHECKS,
    *memory.CHECKS,
    *system.CHECKS,
    *environment.CHECKS,
    *sizes.CHECKS,
    *lengths.CHECKS,
    *context.CHECKS,
    *running.CHECKS,
    *traffic.CHECKS,
    *misses.CHECKS,
)
