"""Check kvcellar's GPU path on this machine: order of copies, races, speed, pinning.

    make gpu-check                          on a GPU, a few minutes
    make gpu-check GPU_CHECK_ARGS=--fake    anywhere; the figures mean nothing

Needs PyTorch with CUDA and numpy, nothing else. Prints short tables and, with
``--json``, writes all figures. The exit code is 1 if a check failed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # so that it runs where nothing is installed

from kvcellar.device.driver import DeviceError  # noqa: E402
from kvcellar.device.numa import node_of  # noqa: E402
from kvcellar.layout.units import format_bytes  # noqa: E402
from kvcellar.testing.fake_driver import COMPUTE, RANDOM, FakeDriver  # noqa: E402
from kvcellar.testing.gpu.check import (  # noqa: E402
    REAL,
    SECTIONS,
    TINY,
    Checks,
    Report,
    Sizes,
)
from kvcellar.testing.gpu.machine import FakeMachine, Machine  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen sections: 0 if nothing failed, 1 if some did, 2 without a GPU."""
    options = _parser().parse_args(arguments)
    sizes = TINY if options.fake else REAL
    try:
        make_machine, machine_facts, node = _machines(sizes, is_fake=options.fake)
    except (DeviceError, ImportError) as cause:
        print(
            f"gpu-check: {cause}; run it where PyTorch has CUDA, or with --fake",
            file=sys.stderr,
        )
        return 2
    print(", ".join(f"{name} {value}" for name, value in machine_facts.items()))
    checks = Checks(make_machine, sizes, node)
    started = time.monotonic()
    for section in options.only or SECTIONS:
        if time.monotonic() - started > options.seconds:
            print(f"{section}: left out, the {options.seconds:.0f} s are over")
            continue
        checks.run(section)
        _print_section(section, checks.report.sections[section])
    seconds = time.monotonic() - started
    _print_verdict(checks.report, seconds)
    if options.json is not None:
        _write(options.json, checks.report, machine_facts, seconds)
    return 1 if checks.report.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fake", action="store_true", help="on the fake, tiny sizes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections")
    parser.add_argument(
        "--seconds", type=float, default=420.0, help="begin no section after this"
    )
    return parser


def _machines(
    sizes: Sizes, *, is_fake: bool
) -> tuple[Callable[[], Machine], dict[str, str], int | None]:
    """How to get an accelerator, what it is, and the memory node near it.

    Raises:
        DeviceError: there is none.
        ImportError: PyTorch is missing.
    """
    if is_fake:
        return _FakeMachines(sizes).new, {"gpu": "none (fake)"}, None
    from kvcellar.testing.gpu.torch_machine import TorchMachine

    machine = TorchMachine(sizes.num_words, sizes.longest_span)
    facts = machine.description
    return lambda: machine, facts, node_of(facts["pci"])


class _FakeMachines:
    """Fakes whose streams are late and early in turn."""

    _HASTES = (
        frozenset({RANDOM}),
        frozenset(),
        frozenset({"store", "load"}),
        frozenset({COMPUTE, "store"}),
        frozenset({COMPUTE, "load"}),
    )

    def __init__(self, sizes: Sizes) -> None:
        self._num_words = sizes.num_words
        self._count = 0

    def new(self) -> Machine:
        """The next one."""
        haste = self._HASTES[self._count % len(self._HASTES)]
        self._count += 1
        return FakeMachine(
            self._num_words, FakeDriver(haste, seed=self._count, patience=12)
        )


def _print_section(name: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}")
    for row in rows:
        print("  " + _LINES[name](row))
    sys.stdout.flush()


def _ordering_line(row: dict[str, Any]) -> str:
    verdict = "right" if row["is_right"] else "WRONG BYTES"
    noticed = "noticed" if row["is_noticed"] else "NOT NOTICED"
    return f"{row['rule']:44} {verdict:11}  without it: {noticed}"


def _hunt_line(row: dict[str, Any]) -> str:
    what = f"{row['fault'] or 'as it is'}, seed {row['seed']}"
    return (
        f"{what:24} {row['num_steps']:6,} steps {row['num_jobs']:6,} jobs "
        f"{row['num_compared']:7,} blocks compared, {row['num_wrong']} wrong"
    )


def _pinning_line(row: dict[str, Any]) -> str:
    return (
        f"per GiB: pages {row['provide_seconds']:.3f} s, "
        f"register {row['register_seconds']:.3f} s, "
        f"unregister {row['unregister_seconds']:.3f} s; "
        f"longest launch {row['launch_seconds'] * 1e3:.2f} ms meanwhile, "
        f"{row['quiet_launch_seconds'] * 1e3:.2f} ms otherwise"
    )


def _copies_line(row: dict[str, Any]) -> str:
    return (
        f"{row['cache']:18} {row['group']:11} {format_bytes(row['page_bytes']):>10} "
        f"{row['direction']:5} {row['num_blocks']:4} blocks "
        f"{format_bytes(row['job_bytes']):>10}  {row['gbps']:7.2f} of "
        f"{row['plain_gbps']:7.2f} GB/s {row['share']:6.0%}"
    )


def _overlap_line(row: dict[str, Any]) -> str:
    return (
        f"{row['cache']:18} products {row['alone_seconds'] * 1e3:.2f} ms alone, "
        f"{row['beside_seconds'] * 1e3:.2f} ms beside copies: {row['slowdown']:+.1%}"
    )


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "ordering": _ordering_line,
    "hunt": _hunt_line,
    "pinning": _pinning_line,
    "copies": _copies_line,
    "overlap": _overlap_line,
}


def _print_verdict(report: Report, seconds: float) -> None:
    print(f"\n{len(report.failures)} checks failed, took {seconds:.0f} s")
    for failure in report.failures:
        print(f"  FAILED {failure}")


def _write(path: Path, report: Report, facts: dict[str, str], seconds: float) -> None:
    found = {
        "machine": facts,
        "seconds": seconds,
        "failures": report.failures,
        **report.sections,
    }
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
