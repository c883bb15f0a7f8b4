"""A run written down, one JSON object a line, and a run from what is written.

The first line holds the options and versions, the next ones the events in order, the
last one how it failed. Lines between may be deleted to make a failing run smaller.
"""

import importlib.metadata
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvcellar.errors import ConfigError
from kvcellar.testing.oracle.events import Event, Steps, from_record, to_record
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed: the exception's kind, its words, and the step."""

    kind: str
    message: str
    step: int

    @classmethod
    def of(cls, cause: Exception, step: int) -> "Failure":
        """From what was raised."""
        return cls(type(cause).__name__, str(cause), step)


@dataclass(frozen=True, slots=True)
class Record:
    """What a file holds."""

    options: OracleOptions
    events: tuple[Event, ...]
    failure: Failure | None


def run_events(
    options: OracleOptions, events: Iterable[Event], until: int | None = None
) -> tuple[Failure | None, int]:
    """Run what is written.

    Args:
        until: steps after which to stop; None runs to the end.

    Returns:
        How it failed, if it did, and the steps that were run.
    """
    oracle = make_oracle(options)
    try:
        for event in _up_to(events, until):
            oracle.apply(event)
    except Exception as cause:  # noqa: BLE001 - whatever it is, it failed
        return Failure.of(cause, oracle.figures.num_steps), oracle.figures.num_steps
    finally:
        oracle.close()
    return None, oracle.figures.num_steps


def _up_to(events: Iterable[Event], until: int | None) -> Iterator[Event]:
    """Events until so many steps are done."""
    for event in events:
        if until is not None and isinstance(event, Steps):
            count = min(event.count, until)
            until -= count
            yield Steps(count)
        elif until != 0:
            yield event


def shrunk(written: Record) -> tuple[Event, ...]:
    """Fewer events that fail in the same way; no single one of them can be left out.

    Ever smaller stretches are left out, as long as what is left still fails.
    """
    events, size = written.events, len(written.events) // 2
    while size:
        first, num_before = 0, len(events)
        while first < len(events):
            fewer = events[:first] + events[first + size :]
            failure, _ = run_events(written.options, fewer)
            if failure and written.failure and failure.kind == written.failure.kind:
                events = fewer
            else:
                first += size
        # What goes may have been all that kept an earlier one: look once more.
        if size > 1 or len(events) == num_before:
            size //= 2
    return events


def write(
    path: Path, options: OracleOptions, events: Iterable[Event], failure: Failure
) -> None:
    """Write a failing run down."""
    lines: list[dict[str, Any]] = [
        {"options": asdict(options), "versions": _versions()}
    ]
    lines += [to_record(event) for event in events]
    lines.append({"failure": asdict(failure)})
    path.write_text("".join(f"{_line(record)}\n" for record in lines), "utf-8")


def read(path: Path) -> Record:
    """Read a run.

    Raises:
        ConfigError: a line is not what ``write`` writes; says which.
    """
    options, failure, events = None, None, []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            if "options" in record:
                values = record["options"]
                values["stages"] = tuple(values.get("stages", ()))
                options = OracleOptions(**values)
            elif "failure" in record:
                failure = Failure(**record["failure"])
            else:
                events.append(from_record(record))
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise ConfigError(
                f"{path}, line {number} is not an oracle's event: {cause!r}; delete it "
                "or write it as the other lines are"
            ) from cause
    if options is None:
        raise ConfigError(f"{path} has no line with options, so nothing can be run")
    return Record(options, tuple(events), failure)


def other_versions(path: Path) -> dict[str, str]:
    """What ran then in other versions than now, as it was then."""
    with path.open(encoding="utf-8") as lines:
        then: dict[str, str] = json.loads(next(lines)).get("versions", {})
    now = _versions()
    return {name: version for name, version in then.items() if now[name] != version}


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def _versions() -> dict[str, str]:
    import vllm

    return {
        "kvcellar": importlib.metadata.version("kvcellar"),
        "vllm": vllm.__version__,
        "python": platform.python_version(),
    }
