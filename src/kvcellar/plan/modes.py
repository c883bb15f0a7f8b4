"""Eager or lazy: what each would hold, and which one suits.

Eager host memory also has what the device still holds; lazy has what the device has
lost. So where the order of eviction lets in everything, lazy gains the more, the
smaller host memory is beside the device cache. A selective order keeps out what is not
worth its room, and goes by the uses that the device did not serve; so with it the two
modes are close, and eager suits whatever the sizes (docs/benchmarks.md, "Defaults").

Under any order, what runs keeps what it has stored. Host memory that holds less than
what runs at once has room for nothing else in eager mode, so lazy suits it.

Both are measured in typical prompts, not in bytes: the device pays for padding and for
a row as wide as the widest group, host memory for neither. Parts of a prompt count, so
that for plain attention this is the ratio of the bytes.
"""

from dataclasses import dataclass
from enum import StrEnum

from kvcellar.config import SELECTIVE_POLICIES
from kvcellar.plan.device import DevicePlan
from kvcellar.plan.host import HostPlan

LAZY_BELOW = 2.0
"""Host memory that holds less than this many times the device cache should be lazy,
where the order of eviction lets in everything."""


class ModeReason(StrEnum):
    """Why a mode suits."""

    SMALL = "small"  # host memory holds less than LAZY_BELOW times the device
    LARGE = "large"  # at least that
    UNKNOWN = "unknown"  # nobody says what the device holds
    SELECTIVE = "selective"  # the order keeps out what is not worth its room
    CROWDED = "crowded"  # host memory holds less than what runs at once


_LAZY_REASONS = frozenset({ModeReason.SMALL, ModeReason.CROWDED})


@dataclass(frozen=True, slots=True)
class ModeAdvice:
    """The mode to use, and what both would do.

    Attributes:
        mode: ``"eager"`` or ``"lazy"``.
        reason: why.
        eviction_policy: that the advice is for.
        coverage: prompts that host memory holds for each one that the device holds;
            None if the device's memory is not known.
        eager_prompts: different typical prompts that device and host hold together in
            eager mode, at least; None if the device's memory is not known.
        lazy_prompts: the same in lazy mode, at most.
        lazy_above_device_bytes: device memory, of each GPU, above which lazy suits;
            None where that does not decide.
    """

    mode: str
    reason: ModeReason
    eviction_policy: str
    coverage: float | None
    eager_prompts: int | None
    lazy_prompts: int | None
    lazy_above_device_bytes: int | None

    @property
    def is_close(self) -> bool:
        """Whether the other mode may find as much."""
        return self.reason is ModeReason.SELECTIVE


def advise_mode(
    host: HostPlan,
    device: DevicePlan | None,
    device_bytes_per_prompt: int,
    eviction_policy: str,
    num_at_once: int | None,
) -> ModeAdvice:
    """Choose the mode.

    Args:
        device_bytes_per_prompt: of each GPU, that keep one typical prompt.
        num_at_once: requests that run at once, on all replicas; None if not known.
    """
    rank_bytes = max(stage.prompt_bytes for stage in host.stages)
    num_in_host = host.asked_bytes_per_rank * host.num_sharing / rank_bytes
    threshold = int(num_in_host / LAZY_BELOW * device_bytes_per_prompt)
    coverage = eager_prompts = lazy_prompts = None
    if device is not None:
        coverage = num_in_host * device_bytes_per_prompt / device.memory_bytes
        eager_prompts = max(host.num_prompts, device.num_prompts)
        lazy_prompts = host.num_prompts + device.num_prompts
    is_crowded = (num_at_once or 0) > host.num_prompts_in_total
    reason = _reason(coverage, eviction_policy, is_crowded=is_crowded)
    return ModeAdvice(
        mode="lazy" if reason in _LAZY_REASONS else "eager",
        reason=reason,
        eviction_policy=eviction_policy,
        coverage=coverage,
        eager_prompts=eager_prompts,
        lazy_prompts=lazy_prompts,
        lazy_above_device_bytes=threshold if reason is ModeReason.UNKNOWN else None,
    )


def _reason(
    coverage: float | None, eviction_policy: str, *, is_crowded: bool
) -> ModeReason:
    is_selective = eviction_policy in SELECTIVE_POLICIES
    if not is_selective and coverage is not None and coverage < LAZY_BELOW:
        return ModeReason.SMALL
    if is_crowded:
        return ModeReason.CROWDED
    if is_selective:
        return ModeReason.SELECTIVE
    return ModeReason.UNKNOWN if coverage is None else ModeReason.LARGE
