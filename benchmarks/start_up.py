"""How long the tools take to answer: a whole process from start to end.

``kvcellar --help`` is typed most often, ``kvcellar plan`` with a question in mind.
Timed by the wall clock, since that is what is waited for: the middle of all runs.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from report import Options, Row, Table, run_script

NUM_RUNS = 15
CASES: dict[tuple[str, ...], float] = {  # command and budget in seconds
    ("--help",): 0.3,
    ("plan", "--model", "deepseek-v4-flash", "--host-memory", "64GiB"): 1.0,
    (
        *("plan", "--model", "gemma-3-27b", "--host-memory", "64GiB"),
        *("--device-memory", "40GiB", "--json"),
    ): 1.0,
}


def measure(options: Options) -> list[Table]:
    """One row per command."""
    num_runs = 1 if options.is_quick else NUM_RUNS
    rows = [timed(command, budget, num_runs) for command, budget in CASES.items()]
    return [Table("whole commands, from start to end", rows)]


def timed(command: Sequence[str], budget_seconds: float, num_runs: int) -> Row:
    """The middle and the longest of all runs, after one to warm up."""
    laps = [seconds_of(command) for _ in range(num_runs + 1)][1:]
    return {
        "command": " ".join(("kvcellar", *command)),
        "seconds": statistics.median(laps),
        "longest_seconds": max(laps),
        "budget_seconds": budget_seconds,
    }


def seconds_of(command: Sequence[str]) -> float:
    """One run; it must succeed."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "kvcellar", *command], capture_output=True, check=True
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    run_script(__doc__, measure)
