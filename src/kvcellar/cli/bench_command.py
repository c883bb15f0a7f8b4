"""``kvcellar bench``: its options, and how they become a request."""

import argparse
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Measure on this machine what kvcellar replay otherwise assumes: copies between device
and host by size of a page, first writes of host memory, the planner's own time and,
with a running vLLM server, how fast that computes prompts and answers.

  kvcellar bench --server http://127.0.0.1:8000 --output speeds.json
  kvcellar replay trace.jsonl.gz --costs speeds.json ...

The server must be idle otherwise. One request runs at a time, with prompts that no
cache knows; a minute at most is usual.

Exit code: 0 if all was measured, 1 if the server fails, 2 for a wrong setting.
"""


_DEFAULT_MODEL = "llama-3.1-8b"


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``bench`` to the command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure this machine's speeds for replay and plan",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="whose pages and planning are measured: a model of the catalogue, or a "
        f"config.json or its folder (default: {_DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="what copies go to and from (default: a GPU if there is one)",
    )
    parser.add_argument(
        "--page-bytes",
        metavar="SIZE,...",
        default="4KiB,16KiB,64KiB,256KiB,1MiB",
        help="sizes of a page besides the model's own (default: %(default)s)",
    )
    parser.add_argument(
        "--server", metavar="URL", help="a running vLLM server, to be measured too"
    )
    parser.add_argument(
        "--prompt-tokens",
        metavar="N,...",
        help="lengths of the server's prompts (default: five, up to 8192)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write the speeds there, as --costs reads them"
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything as one JSON object"
    )
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Measure, print the figures and write the speeds; 0 if all was measured."""
    from kvcellar.bench.result import write_speeds
    from kvcellar.bench.run import BenchRequest, run_bench
    from kvcellar.bench.table import table_of
    from kvcellar.bench.words import lengths_of, page_sizes_of
    from kvcellar.demo.progress import Progress

    request = BenchRequest(
        model=options.model or _DEFAULT_MODEL,
        device=options.device,
        page_bytes=page_sizes_of(options.page_bytes),
        server_url=options.server,
        prompt_tokens=lengths_of(options.prompt_tokens),
    )
    with Progress(sys.stderr) as line:
        result = run_bench(request, line.stage)
    print(result.to_json() if options.json else table_of(result))
    if options.server is not None and options.model is None:
        print(
            f"kvcellar: copies and planning are those of {_DEFAULT_MODEL}; name the "
            "model that the server serves with --model",
            file=sys.stderr,
        )
    if options.output is not None:
        write_speeds(result, options.output)
        print(f"kvcellar: wrote {options.output}", file=sys.stderr)
    return 0
