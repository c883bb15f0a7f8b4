"""What happens to an engine from outside, as values that can be written down.

A run is a list of these. All else follows from the run's options, so the same list
makes the same run again, and a shorter one makes a smaller run.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

Segment = tuple[str, int, int]
"""Tokens of a stream: its name, the first place, how many."""

Control = tuple[str, Any]
"""One entry of a request's ``kv_transfer_params``."""

Picture = tuple[int, int, int]
"""A picture in a prompt: its first token, how many tokens, which picture."""


@dataclass(frozen=True, slots=True)
class Arrive:
    """A request arrives.

    Attributes:
        segments: where the prompt's tokens come from.
        new_tokens: the longest answer.
        salt: number of its cache salt, 0 for none.
        adapter: number of its adapter, 0 for none.
        pictures: pictures behind equal placeholder tokens.
        is_embedded: whether the prompt is handed over as embeddings.
        skips_reading: whether it must not use what is cached.
        can_stop: whether one of the token ids ends the answer.
        is_session: whether more input may follow the answer.
        controls: what it asks kvcellar for, right or wrong.
    """

    request_id: str
    segments: tuple[Segment, ...]
    new_tokens: int
    salt: int = 0
    adapter: int = 0
    pictures: tuple[Picture, ...] = ()
    is_embedded: bool = False
    skips_reading: bool = False
    can_stop: bool = False
    is_session: bool = False
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True)
class Extend:
    """More input for a session, for now or for after its present answer.

    Attributes:
        stream: whose first ``num_tokens`` tokens are the input, and the answer's too.
    """

    request_id: str
    stream: str
    num_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """No more input will come for a session."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Abort:
    """The client of a request, in any state, goes away."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The weights change: what the old ones computed must never be read again.

    Attributes:
        is_paused: whether the engine takes in all that is under way before.
        is_forced: whether running requests are preempted; else they forbid it.
    """

    is_paused: bool
    is_forced: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """The device can no longer find a share of what it holds; host memory can.

    Attributes:
        seed: decides which.
    """

    share: float
    seed: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Copies get faster or slower.

    Attributes:
        slowness: chance that a poll ends no further copy.
    """

    slowness: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Turns of the engine's main loop."""

    count: int


@dataclass(frozen=True, slots=True)
class Finish:
    """No more requests; everything ends, and nothing may stay held."""


Event = Arrive | Extend | CloseSession | Abort | Reset | Forget | Speed | Steps | Finish

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Arrive, Extend, CloseSession, Abort, Reset),
        *(Forget, Speed, Steps, Finish),
    )
}


def to_record(event: Event) -> dict[str, Any]:
    """A JSON object: the kind, and the attributes that are not as usual."""
    record: dict[str, Any] = {"event": type(event).__name__}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if value != field.default:
            record[field.name] = value
    return record


def from_record(record: dict[str, Any]) -> Event:
    """Read what ``to_record`` wrote.

    Raises:
        KeyError: there is no such kind of event.
        TypeError: an attribute is missing or unknown.
    """
    values = dict(record)
    kind = _KINDS[values.pop("event")]
    for name in ("segments", "pictures", "controls"):
        if name in values:
            values[name] = tuple(tuple(part) for part in values[name])
    event: Event = kind(**values)
    return event
