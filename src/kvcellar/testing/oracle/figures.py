"""What a run has done, and how a run can go wrong."""

from dataclasses import dataclass


class HangError(AssertionError):
    """Requests wait, and nothing has moved for too many steps."""


class LeakError(AssertionError):
    """Something is still held after every request has ended."""


@dataclass(slots=True)
class OracleFigures:
    """What a run has done."""

    num_steps: int = 0
    num_ahead: int = 0
    num_requests: int = 0
    num_aborts: int = 0
    num_resets: int = 0
    num_forgets: int = 0
    num_extensions: int = 0
    num_given_up: int = 0
    num_delayed: int = 0
    num_shortened: int = 0
    num_preemptions: int = 0
    num_units_checked: int = 0
    loaded_tokens: int = 0
    cheap_recomputes: int = 0
    stored_chunks: int = 0
    stored_checkpoints: int = 0
    evicted_chunks: int = 0
    refused_loads: int = 0
    failed_jobs: int = 0
    lost_chunks: int = 0
    overtaken_jobs: int = 0
    announced_blocks: int = 0
    withdrawn_blocks: int = 0

    def add(self, other: "OracleFigures") -> None:
        """Add another run's figures."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def describe(self) -> str:
        """All figures in one line."""
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.__slots__)
