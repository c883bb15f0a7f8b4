"""``kvcellar demo``: its options, and how they become settings."""

import argparse
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter
from kvcellar.cli.shared_options import add_mode

if TYPE_CHECKING:
    from collections.abc import Sequence

# A test compares them with the recipes.
TINY_NAMES = ("gemma3", "llama4", "llama", "qwen3-next", "gemma3-mqa")

_DESCRIPTION = """\
Play returning conversations against a real vLLM server on this machine, first without
kvcellar and then with it, and print what a returning user waits for.

The conversations are more than the device cache holds, so each is evicted before its
user returns. Answers after a return must equal those of a device prefix hit of the same
length, token by token and logprob by logprob.

Exit code: 0 if all is well, 1 if anything differs or a server fails.
"""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``demo`` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="show on this machine what kvcellar saves, and that nothing differs",
        usage="kvcellar demo [--tiny NAME | --model PATH] [option ...]",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "--tiny",
        choices=TINY_NAMES,
        metavar="NAME",
        default=TINY_NAMES[0],
        help="tiny random model to make and use: sliding window (gemma3, the default), "
        "chunked local (llama4), full attention only (llama), recurrent state "
        "(qwen3-next), or gemma3 with one KV head, which ranks hold alike (gemma3-mqa)",
    )
    model.add_argument("--model", metavar="PATH", help="a local model to use instead")
    _add_server_options(parser)
    parser.add_argument(
        "--conversations",
        metavar="N",
        type=int,
        default=8,
        help="how many take turns (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        metavar="S",
        type=int,
        default=0,
        help="selects the texts and their lengths (default: %(default)s)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures as one JSON object"
    )
    parser.add_argument(
        "--keep-logs", action="store_true", help="keep the servers' logs and say where"
    )
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share-replicated",
        metavar="WHEN",
        choices=("auto", "on", "off"),
        help="auto, on or off: one copy of what ranks hold alike (default: the "
        "connector's own)",
    )
    parser.add_argument(
        "--host-memory",
        metavar="SIZE",
        default="1GiB",
        help="host memory of the server (default: %(default)s)",
    )
    add_mode(parser)
    parser.add_argument(
        "--tensor-parallel",
        metavar="N",
        type=int,
        default=1,
        help="ranks that share the model, a process each (default: %(default)s)",
    )


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Play the demo, print its report, and return 0 if nothing differs."""
    from kvcellar.config import parse_bytes
    from kvcellar.demo.run import DemoSettings, run_demo
    from kvcellar.demo.table import table_of

    report = run_demo(
        DemoSettings(
            tiny_name=None if options.model else options.tiny,
            model_path=options.model,
            host_memory_bytes=parse_bytes(options.host_memory, "host_memory"),
            mode=options.mode,
            num_conversations=options.conversations,
            seed=options.seed,
            keep_logs=options.keep_logs,
            num_ranks=options.tensor_parallel,
            share_replicated=options.share_replicated,
        )
    )
    print(report.to_json() if options.json else table_of(report))
    for problem in report.problems:
        print(f"kvcellar: {problem}", file=sys.stderr)
    return 1 if report.problems else 0
