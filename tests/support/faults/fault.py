"""One fault that somebody could make."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One planted fault: in ``file``, ``old`` becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
