"""Run the oracle from a shell, for as long as one likes.

    python -m kvcellar.testing.oracle --layout deepseek-v4-flash --steps 10000 --seed 1

Exit code 1 on a wrong byte, a hang or a leak. The last line carries the figures.
"""

import argparse
import logging
import random
import sys
import time
import warnings

from kvcellar.attention.hybrid import HybridRules
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.testing.oracle.layouts import LAYOUT_NAMES, OracleLayout, build
from kvcellar.testing.oracle.oracle import Oracle, OracleFigures

PIECE_STEPS = 5000  # a fresh engine and seed after this many


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m kvcellar.testing.oracle")
    parser.add_argument("--layout", required=True, help='a name, "all", or "list"')
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=("eager", "lazy", "both"), default="both")
    parser.add_argument("--failures", type=float, default=0.0, metavar="RATE")
    parser.add_argument(
        "--host-prompts",
        type=float,
        default=0.0,
        help="long prompts that host memory holds; 0 lets the seed choose",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; the process's exit code."""
    options = parse_arguments(arguments)
    if options.layout == "list":
        print("\n".join(LAYOUT_NAMES))
        return 0
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    names = LAYOUT_NAMES if options.layout == "all" else [options.layout]
    modes = ("eager", "lazy") if options.mode == "both" else (options.mode,)
    outcomes = [run_layout(name, mode, options) for name in names for mode in modes]
    return int(not all(outcomes))


def run_layout(name: str, mode: str, options: argparse.Namespace) -> bool:
    """Run one layout in one mode, in pieces; False if one of them failed."""
    total, started, seed = OracleFigures(), time.monotonic(), options.seed
    while total.num_steps < options.steps:
        steps = min(PIECE_STEPS, options.steps - total.num_steps)
        try:
            figures = run_piece(name, mode, seed, steps, options)
        except Exception as cause:  # noqa: BLE001 - whatever it is, it failed
            print(
                f"{name} {mode}: FAILED with --seed {seed} --steps {steps}: "
                f"{type(cause).__name__}: {cause}"
            )
            return False
        total.add(figures)
        seed += 1
        rate = total.num_steps / (time.monotonic() - started)
        print(f"{name} {mode}: {total.num_steps} steps, {rate:.0f}/s", file=sys.stderr)
    print(f"{name} {mode}: {total.describe()}")
    return True


def run_piece(
    name: str, mode: str, seed: int, num_steps: int, options: argparse.Namespace
) -> OracleFigures:
    """One engine, one seed."""
    rng = random.Random(seed)
    probe = build(name, extra_config={})
    host_prompts = options.host_prompts or rng.choice([2.0, 4.0, 12.0])
    host_bytes = round(host_prompts * prompt_bytes(probe))
    layout = build(
        name,
        extra_config={"host_memory": host_bytes, "mode": mode},
        device_prompts=rng.choice([1.0, 1.5, 3.0]),
    )
    oracle = Oracle(layout, seed, failure_rate=options.failures)
    try:
        return oracle.run(num_steps)
    finally:
        oracle.close()


def prompt_bytes(built: OracleLayout) -> int:
    """Host bytes of a long prompt: its chunks and one checkpoint."""
    layout = layout_from_kv_cache_config(built.worker_config)
    rules = HybridRules(layout)
    boundary = built.prompt_tokens // layout.chunk_tokens * layout.chunk_tokens
    chunk = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
    checkpoint = sum(
        len(blocks) * layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(boundary)
    )
    return chunk * (boundary // layout.chunk_tokens) + checkpoint


if __name__ == "__main__":
    sys.exit(main())
