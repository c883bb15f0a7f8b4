"""``kvcellar why``: its options, and printing one request's account."""

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter
from kvcellar.cli.shared_options import add_server

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Say where the tokens of one request's prompt came from, and why the others were
computed. REQUEST_ID is the id of the answer (such as chatcmpl-...), the X-Request-Id
that the client sent, or the id in the server's log. The server keeps the latest 4,096
requests.

  kvcellar why chatcmpl-8a6e... --server http://127.0.0.1:8000

The server must have been started with kvcellar serve, or with
--middleware kvcellar.integrations.vllm.endpoint.StatusEndpoint.
"""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``why`` to the command line."""
    parser = subparsers.add_parser(
        "why",
        help="say why a request's prompt tokens were computed, not served",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("request_id", metavar="REQUEST_ID", help="see above")
    add_server(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the server's answer as JSON"
    )
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Ask the server, print, and return 0."""
    import json

    from kvcellar.monitor.why import describe_accounts, fetch_accounts

    answer = fetch_accounts(options.server, options.request_id, options.api_key)
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(describe_accounts(answer, width))
    return 0
