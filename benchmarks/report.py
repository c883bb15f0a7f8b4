"""What every benchmark prints: tables of rows, or the same as JSON; and the machine."""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Value = str | int | float | bool | None
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with the same columns; a column's name ends in its unit."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for.

    Attributes:
        is_quick: sizes so small that the figures mean nothing; for tests.
        has_vllm: whether vLLM's own connectors are measured beside ours.
    """

    is_quick: bool
    has_vllm: bool


def run_script(
    description: str | None, measure: Callable[[Options], list[Table]]
) -> None:
    """The ``main`` of a benchmark: read options, measure, print.

    Args:
        description: the script's docstring; its first line is shown by ``--help``.
    """
    summary = (description or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for tests")
    parser.add_argument(
        "--without-vllm", action="store_true", help="leave vLLM's own connectors out"
    )
    given = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    has_vllm = importlib.util.find_spec("vllm") is not None and not given.without_vllm
    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the figures alone
        tables = measure(Options(is_quick=given.quick, has_vllm=has_vllm))
    if given.json:
        print(json.dumps({"tables": [asdict(table) for table in tables]}, indent=1))
        return
    print(describe_machine(machine()))
    for table in tables:
        print(f"\n{table.title}\n{format_rows(table.rows)}")


def compare(
    case: str,
    cellar_us: float | None,
    *,
    simple_us: float | None = None,
    offloading_us: float | None = None,
    budget_us: float | None = None,
) -> Row:
    """One timing of ours beside the same of vLLM's two connectors.

    ``fastest_native_ratio`` is how often ours fits into the faster of the two.
    """
    natives = [us for us in (simple_us, offloading_us) if us is not None]
    ratio = min(natives) / cellar_us if natives and cellar_us else None
    within = None
    if budget_us is not None and cellar_us is not None:
        within = cellar_us <= budget_us
    return {
        "case": case,
        "kvcellar_us": cellar_us,
        "budget_us": budget_us,
        "within": within,
        "simple_us": simple_us,
        "offloading_us": offloading_us,
        "fastest_native_ratio": ratio,
    }


def format_rows(rows: Sequence[Row]) -> str:
    """The rows as text, columns padded."""
    if not rows:
        return "(no rows)"
    columns = list(rows[0])
    cells = [columns, *([format_value(row[c]) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    is_text = [isinstance(rows[0][c], str) for c in columns]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in cells
    )


def format_value(value: Value) -> str:
    """Numbers with three digits or so; a dash where nothing was measured."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value


def machine() -> dict[str, str | int]:
    """Where and with what the figures were measured."""
    return {
        "cpu": _cpu_model(),
        "num_cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "vllm": _version("vllm") or "not installed",
        "commit": _commit(),
    }


def describe_machine(facts: Mapping[str, str | int]) -> str:
    """One line for the head of a report."""
    return (
        f"{facts['cpu']}, {facts['num_cores']} cores, Python {facts['python']}, "
        f"vLLM {facts['vllm']}, commit {facts['commit']}"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    for name in (package, f"{package}-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _commit() -> str:
    def git(*args: str) -> str:
        command = ["git", "-C", str(ROOT), *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("+changes" if git("status", "--porcelain", "--", "src") else "")
