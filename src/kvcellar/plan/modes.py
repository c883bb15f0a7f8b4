"""Eager or lazy: what each would hold, and which one suits.

Eager host memory also has what the device still holds; lazy has what the device has
lost. So the smaller host memory is beside the device cache, the more lazy gains.

Both are measured in typical prompts, not in bytes: the device pays for padding and for
a row as wide as the widest group, host memory for neither. Parts of a prompt count, so
that for plain attention this is the ratio of the bytes.
"""

from dataclasses import dataclass

from kvcellar.plan.device import DevicePlan
from kvcellar.plan.host import HostPlan

LAZY_BELOW = 2.0
"""Host memory that holds less than this many times the device cache should be lazy."""


@dataclass(frozen=True, slots=True)
class ModeAdvice:
    """The mode to use, and what both would do.

    Attributes:
        mode: ``"eager"`` or ``"lazy"``.
        coverage: prompts that host memory holds for each one that the device holds;
            None if the device's memory is not known.
        eager_prompts: different typical prompts that device and host hold together in
            eager mode; None if the device's memory is not known.
        lazy_prompts: the same in lazy mode.
        lazy_above_device_bytes: device memory, of each GPU, above which lazy suits.
    """

    mode: str
    coverage: float | None
    eager_prompts: int | None
    lazy_prompts: int | None
    lazy_above_device_bytes: int


def advise_mode(
    host: HostPlan, device: DevicePlan | None, device_bytes_per_prompt: int
) -> ModeAdvice:
    """Choose the mode.

    Args:
        device_bytes_per_prompt: of each GPU, that keep one typical prompt.
    """
    rank_bytes = max(stage.prompt_bytes for stage in host.stages)
    num_in_host = host.asked_bytes_per_rank * host.num_sharing / rank_bytes
    threshold = int(num_in_host / LAZY_BELOW * device_bytes_per_prompt)
    if device is None:
        return ModeAdvice("eager", None, None, None, threshold)
    coverage = num_in_host * device_bytes_per_prompt / device.memory_bytes
    return ModeAdvice(
        mode="lazy" if coverage < LAZY_BELOW else "eager",
        coverage=coverage,
        eager_prompts=max(host.num_prompts, device.num_prompts),
        lazy_prompts=host.num_prompts + device.num_prompts,
        lazy_above_device_bytes=threshold,
    )
