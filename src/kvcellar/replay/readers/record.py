"""One record of a trace file, and checked access to its fields.

Every accessor either returns what its type says or raises a `TraceError` that names the
file, the line, the field, its value and what is expected there.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from kvcellar.errors import TraceError
from kvcellar.replay.readers.ids import IdArray, to_id
from kvcellar.replay.readers.shorten import shorten

_MISSING = object()
_MAX_WHOLE = 2**53  # beyond it JSON's readers do not agree


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object inside a record.

    Attributes:
        path: the file.
        line: number of the line, from 1.
        data: the object.
        prefix: where in the record the object lies, such as ``"requests[3]."``.
    """

    path: str
    line: int
    data: Mapping[str, object]
    prefix: str = ""

    def error(self, name: str, expected: str) -> TraceError:
        """Make the error for a field that is missing or is not what is expected."""
        field = self.prefix + name
        value = self.data.get(name, _MISSING)
        found = "is missing" if value is _MISSING else f"is {shorten(value)}"
        return TraceError(
            self.path,
            self.line,
            f"{field} {found}, expected {expected}",
            field=field,
        )

    def whole(self, name: str, default: int | None = None) -> int:
        """Read a whole number from zero up; ``default`` where the field is absent."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(name, "a whole number")
        if not 0 <= value <= _MAX_WHOLE:
            raise self.error(name, f"a whole number from 0 to {_MAX_WHOLE}")
        return value

    def number(self, name: str) -> float:
        """Read a number that is finite and not absurdly large."""
        value = self.data.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, "a number")
        if not -_MAX_WHOLE <= value <= _MAX_WHOLE:  # nor is not-a-number in there
            raise self.error(name, f"a number of at most {_MAX_WHOLE}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """Read a text; ``default`` where the field is absent."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(name, "a text")
        return value

    def items(self, name: str) -> list[object]:
        """Read a list."""
        value = self.data.get(name)
        if not isinstance(value, list):
            raise self.error(name, "a list")
        return value

    def objects(self, name: str) -> list["Fields"]:
        """Read a list of objects."""
        found = []
        for position, item in enumerate(self.items(name)):
            place = f"{self.prefix}{name}[{position}]"
            found.append(fields_of(self.path, self.line, item, place))
        return found

    def ids(self, name: str) -> IdArray:
        """Read prefix ids: integers, or texts of hexadecimal digits."""
        items = self.items(name)
        try:
            return array("q", items)  # type: ignore[arg-type] # checked by array itself
        except (TypeError, OverflowError):
            return self._slow_ids(name, items)

    def _slow_ids(self, name: str, items: list[object]) -> IdArray:
        ids = array("q")
        for position, item in enumerate(items):
            number = to_id(item)
            if number is None:
                field = f"{self.prefix}{name}[{position}]"
                problem = f"{field} is {shorten(item)}, expected a 64-bit or hex id"
                raise TraceError(self.path, self.line, problem, field=field)
            ids.append(number)
        return ids

    def num_full_blocks(self, num_ids: int, name: str, length: str, size: int) -> int:
        """Check the number of ids against the prompt's length; count the full blocks.

        Args:
            num_ids: one per block, with or without one for a last, partial block.
            name: field that the ids come from.
            length: field that holds the length of the prompt in tokens.
            size: tokens per block.
        """
        num_tokens = self.whole(length)
        num_full = num_tokens // size
        if num_ids not in (num_full, -(-num_tokens // size)):
            field = self.prefix + name
            problem = (
                f"{field} gives {num_ids} ids, expected {num_full} for {length} "
                f"{num_tokens} in blocks of {size} tokens (one more if the last block "
                "is partial); if the blocks have another size, give it"
            )
            raise TraceError(self.path, self.line, problem, field=field)
        return num_full


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON value of a file, not looked at yet.

    Attributes:
        path: the file.
        line: number of the line, from 1.
        value: what the line says.
    """

    path: str
    line: int
    value: object

    def fields(self) -> Fields:
        """Read the record as an object.

        Raises:
            TraceError: it is something else.
        """
        return fields_of(self.path, self.line, self.value, "")


def fields_of(path: str, line: int, value: object, place: str) -> Fields:
    """Read ``value`` as an object that lies at ``place`` in its record.

    Raises:
        TraceError: it is something else.
    """
    if not isinstance(value, dict):
        name = place or "record"
        problem = f"{name} is {shorten(value)}, expected a JSON object"
        raise TraceError(path, line, problem, field=place)
    return Fields(path, line, value, f"{place}." if place else "")
