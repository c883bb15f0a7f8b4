"""``kvcellar serve``: its options, and how they become settings."""

import argparse
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter
from kvcellar.cli.shared_options import add_mode

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Start vLLM's OpenAI-compatible server for MODEL with kvcellar switched on.

Arguments that kvcellar does not know go to vLLM as they are, and so does everything
after a bare --:

  kvcellar serve MODEL --host-memory 8GiB --port 8001 --max-model-len 32768

Exit code: the server's own; 2 if the settings cannot work and nothing was started.
"""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``serve`` to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="start a vLLM server with kvcellar switched on",
        usage="kvcellar serve MODEL --host-memory SIZE [--mode MODE] [--] [vLLM ...]",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a local folder, or a name on the model hub"
    )
    parser.add_argument(
        "--host-memory",
        metavar="SIZE",
        required=True,
        help="host memory of the whole server, such as 8GiB",
    )
    add_mode(parser)
    parser.set_defaults(run=run, takes_vllm_arguments=True)


def run(options: argparse.Namespace, vllm_arguments: "Sequence[str]") -> int:
    """Start the server and return its exit status."""
    from kvcellar.config import parse_bytes
    from kvcellar.serve.command import ServeSettings
    from kvcellar.serve.run import serve

    return serve(
        ServeSettings(
            model=options.model,
            host_memory_bytes=parse_bytes(options.host_memory, "host_memory"),
            mode=options.mode,
            vllm_arguments=tuple(vllm_arguments),
        ),
        announce=lambda line: print(line, file=sys.stderr, flush=True),
    )
