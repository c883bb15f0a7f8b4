"""What a check says: how bad, what, why it matters, what to do."""

import enum
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """How bad a finding is; the larger, the worse."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        """The severity as people and JSON write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found. Texts are lower case, without a trailing dot.

    Attributes:
        severity: an error means that nothing will work, or nothing will be served; a
            warning, that something is lost or may fail; a note is worth knowing.
        what: the fact, with its value.
        why: why it matters; may be empty where all is well.
        remedy: what to do; empty where nothing need be done.
    """

    severity: Severity
    what: str
    why: str = ""
    remedy: str = ""


def ok(what: str) -> Finding:
    """All is well, and this is what was looked at."""
    return Finding(Severity.OK, what)


def note(what: str, why: str, remedy: str = "") -> Finding:
    """Worth knowing; nothing need be done."""
    return Finding(Severity.NOTE, what, why, remedy)


def warning(what: str, why: str, remedy: str) -> Finding:
    """Something is lost, or may fail later."""
    return Finding(Severity.WARNING, what, why, remedy)


def error(what: str, why: str, remedy: str) -> Finding:
    """It cannot work as it is."""
    return Finding(Severity.ERROR, what, why, remedy)
