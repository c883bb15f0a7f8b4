"""The engine's prefix caching, which all of kvcellar stands on."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, note, ok, warning

_OFF = "--no-enable-prefix-caching"
_NO_HYBRID = "--disable-hybrid-kv-cache-manager"
_INTERVAL = "--prefix-cache-retention-interval"


def find_prefix_caching(facts: Facts) -> Iterator[Finding]:
    """Whether it is on."""
    configuration = facts.configuration
    if configuration is None or configuration.transfer.ours is None:
        return
    if configuration.has(_OFF):
        yield error(
            f"{_OFF} cannot be given",
            "kvcellar finds prompts by vLLM's prefix hashes and cannot work without",
            "leave it out",
        )
    elif configuration.value("--runner") == "pooling":
        yield warning(
            "--runner pooling may turn prefix caching off",
            "kvcellar refuses to start without it",
            "add --enable-prefix-caching, or serve this model without kvcellar",
        )
    else:
        yield ok("prefix caching is on")


def find_hybrid_manager(facts: Facts) -> Iterator[Finding]:
    """The flag that merges all groups of a hybrid model into one."""
    configuration = facts.configuration
    if configuration is None:
        return
    num_groups = None if facts.sizing is None else len(facts.sizing.model.groups_all)
    if not configuration.has(_NO_HYBRID):
        yield ok("the hybrid cache manager is left to vLLM, which keeps it on")
    elif num_groups == 1:
        yield ok(f"{_NO_HYBRID} changes nothing: the model has one group")
    else:
        groups = f"{num_groups} groups" if num_groups else "the model's groups, if any,"
        yield warning(
            f"{_NO_HYBRID} merges {groups} into one",
            "windows are then kept like full attention, a device cache holds far "
            "fewer tokens, and models with recurrent state do not start",
            "leave it out: kvcellar takes every group as it is",
        )


def find_retention(facts: Facts) -> Iterator[Finding]:
    """What the engine keeps of windows and states by itself."""
    configuration = facts.configuration
    if configuration is None or facts.sizing is None:
        return
    layout = facts.sizing.model.layout
    if not layout.checkpoint_positions:
        yield ok("no windows or states: the engine's retention does not matter")
        return
    text = configuration.value(_INTERVAL) or "0"
    interval = configuration.number(_INTERVAL)
    has_states = bool(layout.overwritten_positions)
    block = layout.scheduler_block_tokens
    if interval and interval % block:
        yield warning(
            f"{_INTERVAL}={interval} is no multiple of {block} tokens",
            "vLLM wants a multiple of its scheduler block",
            f"use {-(-interval // block) * block}, or leave it out",
        )
    elif text == "None":
        yield note(
            f"{_INTERVAL}={text} keeps every window block on the device",
            "they push older prompts out; kvcellar places its checkpoints itself and "
            "does not need them",
            "leave it out, unless the device alone must serve prompts that branch",
        )
    elif has_states and not interval:
        yield note(
            "recurrent state is kept where the engine hands it over",
            "that is the end of a prompt and where prompts branch; nothing in between "
            "can be resumed",
            f"{_INTERVAL}={max(block, 4096 // block * block)} adds resume points, for "
            "device memory",
        )
    else:
        yield ok(f"{_INTERVAL}={text}; kvcellar places its own checkpoints")


CHECKS = (
    Check(
        "prefix-caching",
        "is prefix caching on?",
        find_prefix_caching,
        refuses=True,
    ),
    Check("hybrid-manager", "are groups kept apart?", find_hybrid_manager),
    Check("retention", "which states does the engine keep?", find_retention),
)
