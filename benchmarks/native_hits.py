"""Is kvcellar's hit ever smaller than that of vLLM's own connectors, and why?

Random workloads go through the engine's real scheduler once per connector, with the
same host memory; before each request the device has forgotten everything.

    python benchmarks/native_hits.py --layout gpt-oss-20b --workloads 100
"""

import argparse
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

if __name__ == "__main__":  # a test that imports this keeps its own
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from native_compare import NATIVES, Comparison, Outcome
from native_rig import CELLAR

from kvcellar.testing.oracle.layouts import LAYOUT_NAMES


def describe(name: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The layout's rows of the table, one per kind of host memory."""
    for host in sorted({o.host for o in outcomes}):
        these = [o for o in outcomes if o.host == host]
        losing = [o for o in these if o.lost_tokens > 0]
        lookups = [lost for o in these for lost in o.lost]
        totals = [sum(o.totals[c.name] for o in these) for c in (CELLAR, *NATIVES)]
        worst = max(losing, key=lambda o: o.lost_tokens, default=None)
        cells = [
            name,
            host,
            len(these),
            sum(o.num_prompt_tokens for o in these),
            *totals,
            f"{len(losing)} (-{sum(o.lost_tokens for o in losing):,})",
            f"{len(lookups)} of {sum(o.num_requests for o in these):,}",
            "-" if worst is None else f"seed {worst.seed}: -{worst.lost_tokens:,}",
        ]
        yield _row(cells)


HEADER = (
    *("layout", "host", "workloads", "prompt tokens", "kvcellar", "simple"),
    *("offloading", "workloads lost (tokens)", "look-ups lost", "worst workload"),
)


def describe_causes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How often each cause cost a look-up, and how many tokens."""
    for host in sorted({o.host for o in outcomes}):
        lookups, tokens = Counter[str](), Counter[str]()
        in_losing = Counter[str]()
        for outcome in (o for o in outcomes if o.host == host):
            for lost in outcome.lost:
                lookups[lost.cause] += 1
                tokens[lost.cause] += lost.tokens
            if outcome.lost_tokens > 0 and outcome.lost:
                in_losing[max(outcome.lost, key=lambda x: x.tokens).cause] += 1
        for cause, count in lookups.most_common():
            yield (
                f"- {host}: {cause}: {count:,} look-ups, {tokens[cause]:,} tokens; "
                f"main cause of {in_losing[cause]:,} workloads lost"
            )
    failures = Counter(f"{n}: {why}" for o in outcomes for n, why in o.failed.items())
    for failure, count in failures.most_common():
        yield f"- {failure} (in {count:,} of {len(outcomes):,} workloads)"


def describe_cases(outcomes: Sequence[Outcome], most: int) -> Iterator[str]:
    """The worst look-ups of each cause, to be replayed one by one."""
    cases = [(lost, o) for o in outcomes for lost in o.lost]
    shown = Counter[tuple[str, str]]()
    for lost, outcome in sorted(cases, key=lambda case: -case[0].tokens):
        kind = (outcome.host, lost.cause)
        shown[kind] += 1
        if shown[kind] > most:
            continue
        hits = ", ".join(f"{name} {found:,}" for name, found in lost.hits.items())
        yield (
            f"  - seed {outcome.seed} {outcome.host} ({outcome.host_bytes:,} bytes) "
            f"{lost.request}, {lost.num_prompt_tokens:,} tokens: {hits}; "
            f"{lost.cause}; kvcellar can resume at {_shortened(lost.resumable)}"
        )


def _shortened(boundaries: Sequence[int]) -> str:
    shown = ", ".join(str(b) for b in boundaries[-6:])
    return f"... {shown}" if len(boundaries) > 6 else shown or "nothing"


def _row(cells: Sequence[object]) -> str:
    texts = (f"{c:,}" if isinstance(c, int) else str(c) for c in cells)
    return "| " + " | ".join(texts) + " |"


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layout", action="append", choices=LAYOUT_NAMES)
    parser.add_argument("--workloads", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first workload")
    parser.add_argument("--host", choices=("scarce", "ample", "both"), default="both")
    parser.add_argument("--small", action="store_true", help="few bytes per token")
    parser.add_argument("--dense", action="store_true", help="retain every window")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="KEY=JSON",
        help="one of kvcellar's, such as spaced_checkpoint_share=1",
    )
    parser.add_argument("--cases", type=int, default=0, help="examples per cause")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Compare, and print; 1 if any workload was lost."""
    options = parse_arguments(arguments)
    print(_row(HEADER))
    print(_row(["---"] * len(HEADER)))
    notes, has_lost = [], False
    for name in options.layout or LAYOUT_NAMES:
        outcomes = run_layout(name, options)
        has_lost |= any(o.lost_tokens > 0 for o in outcomes)
        print("\n".join(describe(name, outcomes)), flush=True)
        causes = [*describe_causes(outcomes), *describe_cases(outcomes, options.cases)]
        notes += ["", f"**{name}**", "", *(causes or ["- never smaller"])]
    print("\n".join(notes))
    return int(has_lost)


def run_layout(name: str, options: argparse.Namespace) -> list[Outcome]:
    """All workloads of one layout; with both kinds of memory they take turns."""
    settings = [setting.split("=", 1) for setting in options.setting]
    cellar = replace(CELLAR, settings=tuple((k, json.loads(v)) for k, v in settings))
    comparison = Comparison(
        name, is_small=options.small, is_dense=options.dense, cellar=cellar
    )
    hosts = ("scarce", "ample") if options.host == "both" else (options.host,)
    outcomes, started = [], time.monotonic()
    for number in range(options.workloads):
        seed = options.seed + number
        outcomes.append(comparison.run(seed, hosts[seed % len(hosts)]))
        if number % 50 == 49 or number + 1 == options.workloads:
            seconds = time.monotonic() - started
            print(f"{name}: {number + 1} workloads, {seconds:.0f} s", file=sys.stderr)
    return outcomes


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sys.exit(main())
