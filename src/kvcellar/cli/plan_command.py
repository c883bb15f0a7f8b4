"""``kvcellar plan``: its options, and how they become a request."""

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Say what fits into host memory, what it saves and what is wrong with the settings,
before anything is started. Needs no GPU, no engine and no weights.

  kvcellar plan --model deepseek-v4-flash --host-memory 64GiB
  kvcellar plan --model gemma-3-27b --tensor-parallel 2 --device-memory 30GiB \\
      --host-memory 256GiB --prompt-tokens 16000 --concurrency 32

Figures are those that the started server logs. Sizes are bytes, or have a unit as in
64GiB. Speeds are assumed from published figures unless given.

Exit code: 0 if a plan was made, with or without warnings; 1 if the model's architecture
is not known; 2 for a wrong setting.
"""

# By group: option -> (metavar, help); all are read by ``kvcellar.plan.options``.
OPTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "memory": {
        "host-memory": ("SIZE", "host memory of the whole server (default: 8GiB)"),
        "host-memory-per-rank": ("SIZE", "the same for one rank, instead"),
        "device-memory": ("SIZE", "KV cache memory of each GPU, as the engine logs it"),
        "node-memory": ("SIZE", "memory of each machine; more is refused"),
        "disk": ("SIZE", "not served by this release; the plan says so"),
    },
    "engine": {
        "tensor-parallel": ("N", "as --tensor-parallel-size"),
        "pipeline-parallel": ("N", "as --pipeline-parallel-size"),
        "data-parallel": ("N", "replicas, each with a host memory of its own"),
        "nodes": ("N", "machines that share the ranks"),
        "cache-dtype": ("NAME", "as --kv-cache-dtype"),
        "block-tokens": ("N", "as --block-size"),
        "state-dtype": ("NAME", "as --mamba-ssm-cache-dtype"),
        "max-model-len": ("N", "longest context (default: the model's own)"),
        "step-tokens": ("N", "as --max-num-batched-tokens (default: the GPU's)"),
    },
    "traffic": {
        "prompt-tokens": ("N", "length of a typical prompt (default: 4096)"),
        "concurrency": ("N", "requests that run at once"),
    },
    "kvcellar": {
        "mode": ("MODE", "eager or lazy (default: what suits)"),
        "eviction-policy": ("NAME", "as the connector's setting (default: adaptive)"),
        "chunk-tokens": ("N", "tokens per chunk (default: the smallest that fits)"),
        "blocks-per-chunk": ("N", "the same in smallest chunks, instead"),
        "share-replicated": ("X", "auto, on or off: one copy of what ranks hold alike"),
    },
    "speed": {
        "gpu": ("NAME", "assume the speeds of a100, b200, h100 (default), h200, l40s"),
        "active-parameters": ("X", "that a token uses, such as 8e9"),
        "costs": ("FILE", "JSON object of measured speeds, names as below"),
        "prefill-tokens-per-second": ("X", "computing prompts"),
        "decode-seconds-per-token": ("X", "between two tokens of an answer"),
        "load-bytes-per-second": ("X", "host to device, each GPU"),
        "store-bytes-per-second": ("X", "device to host, each GPU"),
        "step-seconds": ("X", "fixed part of each prefill step"),
    },
}
VALUES = tuple(name for options in OPTIONS.values() for name in options)
"""Names of all options that take a value, without dashes."""

_SWITCHES = {
    "no-async-scheduling": "steps are not scheduled ahead, as the engine's option",
    "no-time": "leave load and recompute times out",
    "json": "print the plan as one JSON object",
}


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``plan`` to the command line."""
    parser = subparsers.add_parser(
        "plan",
        help="say what fits and what is wrong with the settings, before a start",
        usage="kvcellar plan --model NAME [--host-memory SIZE] [option ...]",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        required=True,
        help="a model of the catalogue, or a config.json or its folder",
    )
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, (metavar, meaning) in options.items():
            group.add_argument(f"--{name}", metavar=metavar, help=meaning)
    output = parser.add_argument_group("switches")
    for name, meaning in _SWITCHES.items():
        output.add_argument(f"--{name}", action="store_true", help=meaning)
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Print the plan; 0 if there is one."""
    from kvcellar.plan import make_plan
    from kvcellar.plan.options import request_of
    from kvcellar.plan.report.json import json_of
    from kvcellar.plan.report.text import WIDTH, text_of

    plan = make_plan(request_of(vars(options)))
    # What is not a terminal, a file say, gets the same lines everywhere.
    columns = shutil.get_terminal_size((WIDTH, 0)).columns
    width = min(WIDTH, columns) if sys.stdout.isatty() else WIDTH
    print(json_of(plan) if options.json else text_of(plan, width))
    return 0
