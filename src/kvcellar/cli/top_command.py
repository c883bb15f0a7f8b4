"""``kvcellar top``: its options, and starting the live view."""

import argparse
import importlib.util
import shutil
import sys
import time
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter
from kvcellar.cli.shared_options import add_server
from kvcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcellar.monitor.follow import Follower
    from kvcellar.monitor.poll import Fetch

_LEAST_SECONDS, _MOST_SECONDS = 0.2, 60.0
_FALLBACK_SIZE = (100, 44)
_DESCRIPTION = """\
Show what a running server's cache does, live: where prompt tokens come from, how full
host memory is, how fast copies are, why tokens were computed, which prefixes are busy.

  kvcellar top --server http://127.0.0.1:8000
  kvcellar top --once        print one picture and end, for a bug report

The server must have been started with kvcellar serve, or with
--middleware kvcellar.integrations.vllm.endpoint.StatusEndpoint. The live view needs
textual: pip install "kvcellar[top]"; --once and --json do not.
"""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``top`` to the command line."""
    parser = subparsers.add_parser(
        "top",
        help="show live what a running server's cache does",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    add_server(parser)
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=1.0,
        help="between two looks at the server (default: %(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    parser.add_argument(
        "--json", action="store_true", help="print its figures as JSON and end"
    )
    parser.set_defaults(run=run, takes_vllm_arguments=False)


def run(options: argparse.Namespace, _: "Sequence[str]") -> int:
    """Ask the server once, so that what is wrong is said here; then show it."""
    from kvcellar.monitor.follow import Follower

    is_live = not (options.once or options.json)
    _check(options, is_live=is_live)
    follower, fetch = Follower(), _fetch_from(options)
    follower.answered(fetch(True), time.monotonic())  # noqa: FBT003 -- with history
    if is_live:
        _show(follower, fetch, options.interval)
    else:
        _print(follower, fetch, options)
    return 0


def _check(options: argparse.Namespace, *, is_live: bool) -> None:
    seconds = options.interval
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise ConfigError(
            f"interval={seconds:g} is not possible; use {_LEAST_SECONDS:g} to "
            f"{_MOST_SECONDS:g} seconds"
        )
    if not is_live:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "there is no terminal to draw on; use --once for one picture, or --json"
        )
    if importlib.util.find_spec("textual") is None:
        raise ConfigError(
            'the live view needs textual; run pip install "kvcellar[top]", or use '
            "--once for one picture"
        )


def _fetch_from(options: argparse.Namespace) -> "Fetch":
    from kvcellar.monitor.fetch import fetch_json, key_headers
    from kvcellar.serve.server_url import server_url

    url, headers = server_url(options.server), key_headers(options.api_key)

    def fetch(with_history: bool) -> dict[str, object]:  # noqa: FBT001 -- as Fetch has it
        path = "/kvcellar/status"
        return fetch_json(url, f"{path}?history=1" if with_history else path, headers)

    return fetch


def _show(follower: "Follower", fetch: "Fetch", interval_seconds: float) -> None:
    from kvcellar.monitor.poll import Poller
    from kvcellar.monitor.top.app import TopApp
    from kvcellar.monitor.top.session import Session

    # Without the mouse, so that the terminal's own selection goes on working.
    TopApp(Session(follower, Poller(fetch), interval_seconds)).run(mouse=False)


def _print(follower: "Follower", fetch: "Fetch", options: argparse.Namespace) -> None:
    """A server that has just started, or is older, has no history: look twice."""
    from kvcellar.monitor.top.once import picture_json, picture_text

    if all(one.history.is_short for one in follower.engines.values()):
        time.sleep(options.interval)
        follower.answered(fetch(False), time.monotonic())  # noqa: FBT003 -- no history
    if options.json:
        print(picture_json(follower, time.monotonic()))
        return
    width, height = shutil.get_terminal_size(_FALLBACK_SIZE)
    print(picture_text(follower, width, height - 1, time.monotonic()))
