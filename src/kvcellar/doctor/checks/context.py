"""What one request costs, in host memory and on the device."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, ok, warning
from kvcellar.layout.units import format_bytes


def find_costs(facts: Facts) -> Iterator[Finding]:
    """Bytes that grow with a prompt, and bytes that do not, told apart."""
    sizing = facts.sizing
    if sizing is None:
        return
    layout = sizing.layout
    chunk = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
    _, checkpoint = sizing.prompt_bytes
    yield ok(
        f"{format_bytes(chunk / layout.chunk_tokens)} per token and "
        f"{format_bytes(checkpoint)} per resume point, on each rank; a figure of "
        "tokens that fit mixes the two"
    )


def find_context(facts: Facts) -> Iterator[Finding]:
    """The longest request against the device: host memory does not help it."""
    sizing = facts.sizing
    if sizing is None or sizing.device_bytes is None:
        return
    needed = sizing.request_bytes(sizing.max_tokens)
    words = (
        f"one request of {sizing.max_tokens} tokens holds {format_bytes(needed)} of a "
        f"device's {format_bytes(sizing.device_bytes)}"
    )
    if needed <= sizing.device_bytes:
        yield ok(words)
        return
    yield warning(
        words,
        "what a running request computes must fit the device: host memory keeps "
        "prompts for later and lengthens no context",
        "lower --max-model-len, or give the device more",
    )


CHECKS = (
    Check("costs", "what do a token and a resume point cost?", find_costs),
    Check("context", "does the longest request fit the device?", find_context),
)
