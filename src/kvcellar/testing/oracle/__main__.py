"""Run the oracle from a shell, for as long as one likes.

    python -m kvcellar.testing.oracle --layout deepseek-v4-flash --steps 10000 --seed 1
    python -m kvcellar.testing.oracle --layout all --tensor-ranks 2 --pipeline-ranks 2
    python -m kvcellar.testing.oracle --replay FILE

Exit code 1 on a wrong byte, a hang or a leak, 2 on what cannot be run. The last line
carries the figures. A run that fails is written to a file that replays it.
"""

import argparse
import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kvcellar.config import ADMISSIONS, EVICTION_POLICIES, PLACEMENTS
from kvcellar.errors import ConfigError
from kvcellar.testing.oracle import record
from kvcellar.testing.oracle.figures import OracleFigures
from kvcellar.testing.oracle.layouts import LAYOUT_NAMES
from kvcellar.testing.oracle.setup import (
    OracleOptions,
    drawn,
    make_oracle,
    prompt_bytes,
    with_ranks,
)

__all__ = ["main", "prompt_bytes"]

PIECE_STEPS = 5000  # a fresh engine and seed after this many


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m kvcellar.testing.oracle")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--layout", help='a name, "all", or "list"')
    what.add_argument("--replay", type=Path, metavar="FILE", help="of a failed run")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=("eager", "lazy", "both"), default="both")
    parser.add_argument("--failures", type=float, default=0.0, metavar="RATE")
    parser.add_argument("--connectors", type=int, help="of ours, side by side")
    parser.add_argument(
        "--tensor-ranks", type=int, default=1, help="ranks that hold the same layers"
    )
    parser.add_argument(
        "--pipeline-ranks", type=int, default=1, help="stages that share the layers"
    )
    parser.add_argument("--hash-divisor", type=int, help="hashes per block")
    parser.add_argument("--policy", choices=EVICTION_POLICIES)
    parser.add_argument("--admission", choices=ADMISSIONS)
    parser.add_argument("--placement", choices=PLACEMENTS)
    for name, help_text in (
        ("--host-prompts", "long prompts that host memory holds"),
        ("--device-prompts", "long prompts that the device holds"),
    ):
        parser.add_argument(name, type=float, help=help_text)
    for name, help_text in (
        ("--async-scheduling", "whether the engine schedules a step ahead"),
        ("--v2", "whether it talks to vLLM's second model runner"),
        ("--meddling", "whether look-ups are delayed and promises shortened"),
    ):
        parser.add_argument(
            name, choices=("off", "on", "seed"), default="seed", help=help_text
        )
    parser.add_argument(
        "--log", type=Path, metavar="PATH", help="where a failed run is written"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="write a smaller run that fails alike"
    )
    parser.add_argument(
        "--until", type=int, metavar="STEP", help="stop a replay after so many steps"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; the process's exit code."""
    options = parse_arguments(arguments)
    if options.layout == "list":
        print("\n".join(LAYOUT_NAMES))
        return 0
    with _quietly():
        return replay(options) if options.replay else _run(options)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the engine's messages; who called has them again afterwards."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _run(options: argparse.Namespace) -> int:
    """Run all layouts and modes that were asked for; the exit code."""
    names = LAYOUT_NAMES if options.layout == "all" else [options.layout]
    modes = ("eager", "lazy") if options.mode == "both" else (options.mode,)
    try:
        outcomes = [run_layout(name, mode, options) for name in names for mode in modes]
    except ConfigError as cause:
        print(cause, file=sys.stderr)
        return 2
    return int(not all(outcomes))


def run_layout(name: str, mode: str, arguments: argparse.Namespace) -> bool:
    """Run one layout in one mode, in pieces; False if one of them failed."""
    total, started, seed = OracleFigures(), time.monotonic(), arguments.seed
    while total.num_steps < arguments.steps:
        steps = min(PIECE_STEPS, arguments.steps - total.num_steps)
        options = options_of(name, mode, seed, arguments)
        figures = run_piece(options, steps, arguments.log)
        if figures is None:
            return False
        total.add(figures)
        seed += 1
        rate = total.num_steps / (time.monotonic() - started)
        print(f"{name} {mode}: {total.num_steps} steps, {rate:.0f}/s", file=sys.stderr)
    print(f"{name} {mode}: {total.describe()}")
    return True


def options_of(
    name: str, mode: str, seed: int, arguments: argparse.Namespace
) -> OracleOptions:
    """What the command line fixes, and the rest as the seed has it."""
    choices = {"off": False, "on": True}
    options = OracleOptions(name, mode, seed, failure_rate=arguments.failures)
    return drawn(
        with_ranks(options, arguments.tensor_ranks, arguments.pipeline_ranks),
        host_prompts=arguments.host_prompts,
        device_prompts=arguments.device_prompts,
        async_scheduling=choices.get(arguments.async_scheduling),
        is_v2=choices.get(arguments.v2),
        meddles=choices.get(arguments.meddling),
        num_connectors=arguments.connectors,
        hash_divisor=arguments.hash_divisor,
        eviction_policy=arguments.policy,
        admission=arguments.admission,
        placement=arguments.placement,
    )


def run_piece(
    options: OracleOptions, num_steps: int, log: Path | None
) -> OracleFigures | None:
    """One engine, one seed; None, and a file, if it fails.

    Args:
        log: the file; None names it after the options.
    """
    oracle = make_oracle(options)
    try:
        return oracle.run(num_steps)
    except Exception as cause:  # noqa: BLE001 - whatever it is, it failed
        failure = record.Failure.of(cause, oracle.figures.num_steps)
        name = f"oracle-{options.layout}-{options.mode}-{options.seed}.jsonl"
        path = log or Path(name)
        record.write(path, options, oracle.log, failure)
        print(
            f"{options.layout} {options.mode}: FAILED with --seed {options.seed} in "
            f"step {failure.step}: {failure.kind}: {failure.message}\n"
            f"  {options}\n  replay it with --replay {path}"
        )
        return None
    finally:
        oracle.close()


def replay(arguments: argparse.Namespace) -> int:
    """Run a written run again; exit code 1 if it fails, 2 if it cannot be read."""
    path = arguments.replay
    try:
        written = record.read(path)
    except (ConfigError, OSError) as cause:
        print(cause, file=sys.stderr)
        return 2
    for name, version in record.other_versions(path).items():
        print(f"note: this was written with {name} {version}", file=sys.stderr)
    failure, num_steps = record.run_events(
        written.options, written.events, arguments.until
    )
    if failure is None:
        print(f"no failure in {num_steps} steps")
        return 0
    is_same = "as written" if failure == written.failure else "not as written"
    print(f"step {failure.step}: {failure.kind}: {failure.message}\n  {is_same}")
    if arguments.shrink:
        small = arguments.log or path.with_suffix(".small.jsonl")
        shrink(replace(written, failure=failure), small)
    return 1


def shrink(written: record.Record, small: Path) -> None:
    """Write a smaller run that fails alike."""
    events = record.shrunk(written)
    failure, _ = record.run_events(written.options, events)
    assert failure is not None
    record.write(small, written.options, events, failure)
    print(f"  {len(written.events)} events shrunk to {len(events)}: {small}")


if __name__ == "__main__":
    sys.exit(main())
