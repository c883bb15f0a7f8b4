"""One engine's part of ``/kvcellar/status``, checked and typed.

Whatever an older or newer server does not say is nothing or zero; only what is no
status at all is refused.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvcellar.errors import CellarError

_NO_STATUS = (
    "the server's answer is no kvcellar status; is the URL that of a vLLM server"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Growing totals at one moment.

    Attributes:
        uptime_seconds: the engine's own clock.
        totals: since start, by name.
    """

    uptime_seconds: float
    totals: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What one engine says of itself.

    Attributes:
        identity: changes when the engine is another process.
        engine: its number; data-parallel servers have several.
        sample: totals now.
        history: samples before it, oldest first, if it sent some.
        raw: all of the answer.
    """

    identity: int
    engine: int
    sample: Sample
    history: tuple[Sample, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)

    def text(self, *path: str) -> str:
        """A name from the answer, fit for a terminal; empty if it is not there."""
        found = self._find(path)
        return clean(found) if isinstance(found, str) else ""

    def number(self, *path: str) -> float:
        """A figure from the answer; 0 if it is not there."""
        return number(self._find(path))

    def rows(self, *path: str) -> Iterator[Mapping[str, Any]]:
        """A list of objects from the answer."""
        found = self._find(path)
        for row in found if isinstance(found, list) else ():
            if isinstance(row, dict):
                yield row

    def _find(self, path: Sequence[str]) -> Any:
        found: Any = self.raw
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found


def read_status(answer: Mapping[str, Any]) -> list[EngineAnswer]:
    """The engines of a server, by number; numbered anew if two have the same.

    Raises:
        CellarError: this is no status of kvcellar.
    """
    engines = answer.get("engines")
    if not isinstance(engines, list) or not engines:
        raise CellarError(_NO_STATUS)
    read = [_read_engine(raw, at) for at, raw in enumerate(engines)]
    read.sort(key=lambda one: (one.engine, one.identity))
    if len({one.engine for one in read}) < len(read):
        read = [replace(one, engine=at) for at, one in enumerate(read)]
    return read


def clean(text: str) -> str:
    """``text`` with one terminal cell for each character, and nothing that moves it."""
    return "".join(one if _is_plain(one) else "?" for one in text)


def _is_plain(character: str) -> bool:
    is_narrow = unicodedata.east_asian_width(character) not in "WF"
    return (
        character.isprintable() and is_narrow and not unicodedata.combining(character)
    )


def _read_engine(raw: Any, place: int) -> EngineAnswer:
    if not isinstance(raw, dict) or not isinstance(raw.get("tiers"), dict):
        raise CellarError(_NO_STATUS)
    moments = raw.get("history")
    engine = raw.get("engine")
    return EngineAnswer(
        identity=int(number(raw.get("process_id"))),
        engine=engine if isinstance(engine, int) else place,
        sample=_read_sample(raw),
        history=tuple(
            _read_sample(one)
            for one in (moments if isinstance(moments, list) else ())
            if isinstance(one, dict)
        ),
        raw={name: value for name, value in raw.items() if name != "history"},
    )


def _read_sample(raw: Mapping[str, Any]) -> Sample:
    totals = raw.get("totals")
    found = totals if isinstance(totals, dict) else {}
    return Sample(
        number(raw.get("uptime_seconds")),
        {str(name): number(value) for name, value in found.items()},
    )


def number(value: Any) -> float:
    """A figure; 0 if it is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else 0.0
