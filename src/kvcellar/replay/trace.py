"""A trace: requests in the order of their arrival, and what their prompts share.

No text is needed. A prompt is a list of prefix ids, one per full block of tokens: equal
ids mean that the block and everything before it are equal. So the blocks that an
earlier request had in common are the leading run of equal ids, and an id stands for a
whole prefix just as an engine's chained block hash does.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field


def _no_blocks() -> "array[int]":
    return array("q")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request.

    Attributes:
        arrival_seconds: since the trace began; never decreases within a trace.
        num_prompt_tokens: length of the prompt.
        num_output_tokens: length of the answer.
        blocks: prefix ids of the prompt's full blocks, type code ``q``.
        output_blocks: prefix ids of the full blocks that end inside the answer, where
            the trace tells them; empty where it does not.
        session: conversation the request belongs to; empty where unknown.
    """

    arrival_seconds: float
    num_prompt_tokens: int
    num_output_tokens: int
    blocks: "array[int]"
    output_blocks: "array[int]" = field(default_factory=_no_blocks)
    session: str = ""

    @property
    def num_tokens(self) -> int:
        """Prompt and answer."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests that can be walked through any number of times.

    Attributes:
        block_tokens: tokens that one prefix id stands for.
        requests: in the order of arrival.
        num_skipped: records that could not be read and were left out on request.
        format_name: what it was read as; empty where it was not read from a file.
    """

    block_tokens: int
    requests: Iterable[TraceRequest]
    num_skipped: int = 0
    format_name: str = ""
