"""What is wrong with the settings: what, why it matters, what to do; the worst first.

One small function per check. Each returns None where all is well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from kvcellar.plan.figures import Figures
from kvcellar.plan.host import server_bytes_for
from kvcellar.plan.modes import LAZY_BELOW, ModeReason
from kvcellar.plan.words import count, duration, option_size, rounded_up, size

_WORTH_SAYING = 0.02  # of host memory that no cell can cover


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change or to know.

    Attributes:
        name: short and stable, for scripts.
        what: what is wrong, and why it matters.
        remedy: what to do about it.
    """

    name: str
    what: str
    remedy: str


def findings_of(figures: Figures) -> tuple[Finding, ...]:
    """All that apply."""
    found = (check(figures) for check in _CHECKS)
    return tuple(finding for finding in found if finding is not None)


def _context_not_on_device(figures: Figures) -> Finding | None:
    device = figures.device
    if device is None or device.max_concurrency >= 1:
        return None
    return Finding(
        "context-not-on-device",
        f"a request of {device.max_model_tokens:,} tokens does not fit the device "
        f"cache of {size(device.memory_bytes)}, so the engine refuses to start; host "
        "memory does not lengthen the context",
        f"give --max-model-len {device.longest_request_tokens} or less, or more "
        "device memory",
    )


def _no_prompt_in_host(figures: Figures) -> Finding | None:
    host = figures.host
    if host.num_prompts:
        return None
    return Finding(
        "host-below-prompt",
        f"host memory of {size(host.arena_bytes_per_server)} does not hold one prompt "
        f"of {host.prompt_tokens:,} tokens, which takes {size(host.bytes_per_prompt)}, "
        "so no such prompt can come back whole",
        f"give --host-memory {_for_prompts(figures, 1)} at the very least",
    )


def _host_below_device(figures: Figures) -> Finding | None:
    advice, device, host = figures.advice, figures.device, figures.host
    asked_mode = figures.request.asked_mode
    if device is None or advice.coverage is None or not host.num_prompts:
        return None
    if advice.reason is not ModeReason.SMALL or asked_mode == "lazy":
        return None
    server_bytes = host.asked_bytes_per_server
    factor = LAZY_BELOW / advice.coverage
    enough = option_size(rounded_up(math.ceil(server_bytes * factor)))
    held = (
        f"host memory holds {count(host.num_prompts, 'prompt')} of "
        f"{host.prompt_tokens:,} tokens and the device {device.num_prompts:,}"
    )
    if advice.coverage <= 1:
        return Finding(
            "host-below-device",
            f"{held}, so in eager mode it only repeats what the device has",
            f"use --mode lazy, or --host-memory {enough} or more",
        )
    if asked_mode is None:
        return None  # lazy is recommended, and nobody has asked for anything else
    return Finding(
        "host-below-twice-device",
        f"{held}, less than twice as many, so in eager mode "
        f"{1 / advice.coverage:.0%} of it repeats what the device has",
        f"use --mode lazy, or --host-memory {enough} or more",
    )


def _chunk_above_context(figures: Figures) -> Finding | None:
    units = figures.units
    if units.shortest_prompt_tokens <= figures.max_model_tokens:
        return None
    return Finding(
        "chunk-above-context",
        f"hits are multiples of {units.chunk_tokens:,} tokens and no request can be "
        f"longer than {figures.max_model_tokens:,}, so nothing can ever be served; "
        f"that is set by {units.set_by}",
        "raise --max-model-len, or lower the chunk or the block size",
    )


def _chunk_above_prompt(figures: Figures) -> Finding | None:
    units = figures.units
    if units.shortest_prompt_tokens <= figures.prompt_tokens:
        return None
    if units.shortest_prompt_tokens > figures.max_model_tokens:
        return None  # said already, and worse
    return Finding(
        "chunk-above-prompt",
        f"prompts of {figures.prompt_tokens:,} tokens can never hit: hits are "
        f"multiples of {units.chunk_tokens:,} tokens and leave one to compute, so 0 "
        f"tokens are reusable; that is set by {units.set_by}",
        "lower the chunk or the block size if they were raised; else expect hits from "
        f"{units.shortest_prompt_tokens:,} tokens on only",
    )


def _too_many_for_device(figures: Figures) -> Finding | None:
    device, asked = figures.device, figures.request.traffic.num_concurrent
    if device is None or asked is None:
        return None
    room = device.num_running * figures.shape.data_parallel
    if asked <= room:
        return None
    return Finding(
        "concurrency-above-device",
        f"{count(asked, 'request')} of {figures.prompt_tokens:,} tokens are to run at "
        f"once and the device has room for {room:,}, so the others wait or are "
        "preempted; host memory does not change that",
        f"give --max-num-seqs {max(room, 1)}, more device memory or more replicas",
    )


def _too_many_for_host(figures: Figures) -> Finding | None:
    host, at_once = figures.host, figures.num_at_once
    if figures.advice.reason is not ModeReason.CROWDED or not host.num_prompts:
        return None
    if at_once is None or figures.request.asked_mode == "lazy":
        return None  # what runs is on the device, and stored when it leaves
    per_server = -(-at_once // figures.shape.data_parallel)
    return Finding(
        "concurrency-above-host",
        f"{count(at_once, 'request')} of {host.prompt_tokens:,} tokens are to run at "
        f"once and host memory holds {host.num_prompts_in_total:,}; in eager mode "
        "running requests keep what they have stored, so new ones find no room",
        f"give --host-memory {_for_prompts(figures, per_server)} or more, or use "
        "--mode lazy",
    )


def _loading_never_pays(figures: Figures) -> Finding | None:
    timing = figures.timing
    if timing is None or timing.break_even_tokens is not None:
        return None
    return Finding(
        "loading-never-pays",
        f"loading a chunk takes {duration(timing.chunk_load_seconds)} and computing it "
        f"{duration(timing.chunk_recompute_seconds)}, so host memory makes prompts "
        "slower at these speeds",
        "measure this machine's speeds and give them with --costs; if they are right, "
        "serve without kvcellar",
    )


def _breaks_even_late(figures: Figures) -> Finding | None:
    timing = figures.timing
    if timing is None or timing.break_even_tokens is None:
        return None
    if timing.break_even_tokens <= timing.resumed_tokens or not timing.resumed_tokens:
        return None
    return Finding(
        "breaks-even-late",
        f"loading pays from {timing.break_even_tokens:,} tokens on, and prompts have "
        f"{timing.prompt_tokens:,}",
        f"set min_load_tokens to {timing.break_even_tokens} in "
        "kv_connector_extra_config",
    )


def _stages_differ(figures: Figures) -> Finding | None:
    lost = figures.host.unusable_share
    if lost < _WORTH_SAYING:
        return None
    return Finding(
        "stages-differ",
        f"the {figures.shape.pipeline_parallel} pipeline stages hold the cache groups "
        f"in different proportions, so up to {lost:.0%} of host memory cannot be used",
        "use --tensor-parallel instead, or a number of stages that cuts the layers "
        "evenly; --host-memory rather than --host-memory-per-rank gives the fuller "
        "ranks more",
    )


def _disk(figures: Figures) -> Finding | None:
    asked = figures.request.disk_bytes
    if asked is None:
        return None
    return Finding(
        "disk-not-served",
        f"disk of {size(asked)}: this release keeps nothing on disk, so the plan "
        "counts none of it",
        "leave --disk out; what host memory evicts is computed again",
    )


_CHECKS: tuple[Callable[[Figures], Finding | None], ...] = (
    _context_not_on_device,
    _chunk_above_context,
    _no_prompt_in_host,
    _chunk_above_prompt,
    _stages_differ,
    _loading_never_pays,
    _host_below_device,
    _too_many_for_device,
    _too_many_for_host,
    _breaks_even_late,
    _disk,
)


def _for_prompts(figures: Figures, num_prompts: int) -> str:
    """Host memory of the server for so many prompts, as an option takes it."""
    num_bytes = server_bytes_for(
        figures.layouts, figures.shape, figures.host, num_prompts
    )
    return option_size(num_bytes)
