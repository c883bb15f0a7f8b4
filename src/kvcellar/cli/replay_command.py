"""``kvcellar replay``: how it is called, and what it prints."""

import argparse
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter, notes_filled
from kvcellar.cli.replay_options import GRID, GROUPS, SWITCHES, Option

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Play a recorded trace through a simulated server, once for every combination of the
sizes, policies and modes named, and tell what would have been found, how long users
would have waited, what would have been copied and evicted, and why prompts were missed.

  kvcellar replay trace.jsonl.gz --model llama-3.1-8b --device-memory 40GiB \\
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
        usage="kvcellar replay --model NAME --device-memory SIZE,...\n"
        "                       --host-memory SIZE,... [option ...] TRACE",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "trace", metavar="TRACE", help="a trace file, or a folder of them"
    )
    for option in GRID:
        _add(parser, option)
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            _add(group, option)
    switches = parser.add_argument_group("switches")
    for name, meaning in SWITCHES.items():
        switches.add_argument(f"--{name}", action="store_true", help=meaning)
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def _add(group: "argparse._ActionsContainer", option: Option) -> None:
    shown = "" if option.default is None else " (default: %(default)s)"
    group.add_argument(
        f"--{option.name}",
        metavar=option.metavar,
        type=option.value_type,
        default=option.default,
        required=option.is_required,
        help=option.meaning + shown,
    )


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Play the grid, print the report and write the files; 0 if all was played."""
    from kvcellar.demo.progress import Progress
    from kvcellar.replay.grid_request import run_request
    from kvcellar.replay.options import request_of
    from kvcellar.replay.progress import GridProgress
    from kvcellar.replay.report.files import json_of, make_folder, write_files
    from kvcellar.replay.report.text import NOTE, text_of

    request = request_of(vars(options))
    folder = None if options.output is None else make_folder(options.output)
    with Progress(sys.stderr) as line:
        report = run_request(
            request,
            lambda num_cells, num_requests: GridProgress(line, num_cells, num_requests),
        )
    if options.json:
        print(json_of(report), end="")
    else:
        print(notes_filled(text_of(report), NOTE))
    if folder is not None:
        for path in write_files(report, folder):
            print(f"kvcellar: wrote {path}", file=sys.stderr)
    return 0
