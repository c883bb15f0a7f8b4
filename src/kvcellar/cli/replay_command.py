"""``kvcellar replay``: its options, and how they become a request."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcellar.replay.grid_request import ReplayRequest

# A test compares these with what they are read by.
COST_OPTIONS = {
    "prefill_tokens_per_second": "computing prompts",
    "decode_seconds_per_token": "between two tokens of an answer",
    "load_bytes_per_second": "host to device, each GPU",
    "store_bytes_per_second": "device to host, each GPU",
    "step_seconds": "fixed part of each prefill step",
}
GPU_NAMES = ("a100", "b200", "h100", "h200", "l40s")

_DESCRIPTION = """\
Play a recorded trace through a simulated server, once for every combination of the
sizes, policies and modes named, and tell what would have been found, how long users
would have waited, what would have been copied and evicted, and why prompts were missed.

  kvcellar replay conversation.jsonl.gz --model llama-3.1-8b --device-memory 40GiB \\
      --host-memory 0,16GiB,64GiB,256GiB --mode eager,lazy --output report

Decisions are made by the code that serves; the device and time are simulated. The same
input gives the same bytes. Speeds are assumed from published figures unless given.

Exit code: 0 if all was played, 1 if the trace cannot be read or the model cannot be
served, 2 for a wrong setting.
"""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``replay`` to the command line."""
    parser = subparsers.add_parser(
        "replay",
        help="say what host memory would do for a recorded trace",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "trace", metavar="TRACE", help="a trace file, or a folder of them"
    )
    _add_grid(parser)
    _add_engine(parser.add_argument_group("engine"))
    _add_trace(parser.add_argument_group("trace"))
    _add_arrivals(parser.add_argument_group("arrivals"))
    _add_costs(parser.add_argument_group("speed"))
    _add_output(parser.add_argument_group("output"))
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def _add_grid(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="NAME",
        required=True,
        help="a model of the catalogue, or a config.json or its folder",
    )
    parser.add_argument(
        "--device-memory",
        metavar="SIZE,...",
        required=True,
        help="KV cache memory of each GPU; 0 is a device that keeps nothing",
    )
    parser.add_argument(
        "--host-memory",
        metavar="SIZE,...",
        required=True,
        help="host memory of the whole server; 0 is none, the engine alone",
    )
    parser.add_argument(
        "--system",
        metavar="NAME,...",
        default="kvcellar",
        help="kvcellar, and models of vLLM's own connectors, simple and offloading, "
        "to which the three options below do not apply (default: %(default)s)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME,...",
        default="lru",
        help="eviction policies of host memory (default: %(default)s)",
    )
    parser.add_argument(
        "--placement",
        metavar="NAME,...",
        help="which boundaries get a checkpoint (default: as the connector)",
    )
    parser.add_argument(
        "--mode",
        metavar="MODE,...",
        default="eager",
        help="eager, lazy or both (default: %(default)s)",
    )
    parser.add_argument(
        "--admission",
        metavar="NAME,...",
        help="what host memory takes (default: as the connector)",
    )


def _add_engine(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--tensor-parallel", metavar="N", type=int, default=1)
    group.add_argument(
        "--cache-dtype", metavar="NAME", default="auto", help="as --kv-cache-dtype"
    )
    group.add_argument("--block-tokens", metavar="N", type=int, help="as --block-size")
    group.add_argument(
        "--max-num-seqs",
        metavar="N",
        type=int,
        default=256,
        help="requests that run at once (default: %(default)s)",
    )
    group.add_argument(
        "--step-tokens",
        metavar="N",
        type=int,
        default=8192,
        help="most prompt tokens of a step, as --max-num-batched-tokens "
        "(default: %(default)s)",
    )


def _add_trace(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--format", metavar="NAME", help="format of the trace (default: recognised)"
    )
    group.add_argument(
        "--skip-bad", action="store_true", help="leave out records that cannot be read"
    )
    group.add_argument(
        "--tokenizer", metavar="NAME", help="for texts (default: a byte is a token)"
    )
    group.add_argument(
        "--trace-block-tokens",
        metavar="N",
        type=int,
        help="tokens per id of the trace, where its format leaves that open; or a "
        "multiple of what it says: faster, and resumed at fewer places",
    )
    group.add_argument(
        "--limit", metavar="N", type=int, help="play the first N requests only"
    )


def _add_arrivals(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--speed",
        metavar="X",
        type=float,
        default=1.0,
        help="let requests arrive so many times as fast (default: %(default)s)",
    )
    group.add_argument(
        "--jitter",
        metavar="SECONDS",
        type=float,
        help="spread requests that share a time stamp, such as 3 for Mooncake's traces",
    )
    group.add_argument("--seed", metavar="S", type=int, default=0, help="of the jitter")
    group.add_argument(
        "--sessions-per-second",
        metavar="X",
        type=float,
        default=0.05,
        help="how sessions start where the trace has no common clock "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--max-gap",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="longest pause in such a session (default: %(default)s)",
    )


def _add_costs(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--no-time",
        action="store_true",
        help="nothing takes time: hits without waiting",
    )
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help=f"assume the speeds of {', '.join(GPU_NAMES)} (default: h100)",
    )
    group.add_argument(
        "--active-parameters",
        metavar="X",
        type=float,
        help="parameters that a token uses, such as 8e9, for models that are not known",
    )
    group.add_argument(
        "--costs", metavar="FILE", help="JSON object of measured speeds, names as below"
    )
    for name, meaning in COST_OPTIONS.items():
        option = f"--{name.replace('_', '-')}"
        group.add_argument(option, metavar="X", type=float, help=meaning)


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--output",
        metavar="DIR",
        help="write replay.csv, replay.json and replay.html there",
    )
    group.add_argument(
        "--json", action="store_true", help="print the figures as one JSON object"
    )
    group.add_argument(
        "--processes", metavar="N", type=int, help="default: one per core"
    )


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Play the grid, print the report and write the files; 0 if all was played."""
    from kvcellar.demo.progress import Progress
    from kvcellar.replay.grid_request import run_request
    from kvcellar.replay.progress import GridProgress
    from kvcellar.replay.report.files import json_of, make_folder, write_files
    from kvcellar.replay.report.text import text_of

    request = _request(options)
    folder = None if options.output is None else make_folder(options.output)
    with Progress(sys.stderr) as line:
        report = run_request(
            request,
            lambda num_cells, num_requests: GridProgress(line, num_cells, num_requests),
        )
    print(json_of(report) if options.json else text_of(report) + "\n", end="")
    if folder is not None:
        for path in write_files(report, folder):
            print(f"kvcellar: wrote {path}", file=sys.stderr)
    return 0


def _if_named(text: str | None, key: str) -> "tuple[str | None, ...]":
    """What is named; one None leaves it to the connector's default."""
    from kvcellar.replay.grid import words_of

    return words_of(text, key) if text else (None,)


def _request(options: argparse.Namespace) -> "ReplayRequest":
    from kvcellar.replay.grid import GridAxes, sizes_of, words_of
    from kvcellar.replay.grid_request import ModelChoice, ReplayRequest, TraceChoice
    from kvcellar.replay.presets_choice import CostChoice
    from kvcellar.replay.readers import Arrivals
    from kvcellar.replay.server import ServerLimits

    given = {name: getattr(options, name) for name in COST_OPTIONS}
    return ReplayRequest(
        trace=TraceChoice(
            path=options.trace,
            format=options.format,
            skip_bad=options.skip_bad,
            tokenizer=options.tokenizer,
            block_tokens=options.trace_block_tokens,
            arrivals=Arrivals(
                jitter_seconds=options.jitter,
                seed=options.seed,
                sessions_per_second=options.sessions_per_second,
                max_gap_seconds=options.max_gap,
            ),
            limit=options.limit,
            speed=options.speed,
        ),
        model=ModelChoice(
            options.model,
            options.cache_dtype,
            options.block_tokens,
            options.tensor_parallel,
        ),
        axes=GridAxes(
            device_memory_bytes=sizes_of(options.device_memory, "device_memory"),
            host_memory_bytes=sizes_of(options.host_memory, "host_memory"),
            systems=words_of(options.system, "system"),
            policies=words_of(options.policy, "policy"),
            modes=words_of(options.mode, "mode"),
            placements=_if_named(options.placement, "placement"),
            admissions=_if_named(options.admission, "admission"),
        ),
        costs=CostChoice(
            is_timeless=options.no_time,
            gpu=options.gpu,
            active_parameters=options.active_parameters,
            costs_path=options.costs,
            given={name: value for name, value in given.items() if value is not None},
        ),
        limits=ServerLimits(options.max_num_seqs, options.step_tokens),
        num_processes=options.processes,
    )
