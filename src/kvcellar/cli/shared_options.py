"""Options that several commands have, and have alike."""

import argparse
import os


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add ``--server`` and ``--api-key``: which running server to ask."""
    parser.add_argument(
        "--server",
        metavar="URL",
        default="http://127.0.0.1:8000",
        help="the server's address (default: %(default)s)",
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("KVCELLAR_API_KEY"),
        help="for what is in front of the server (default: $KVCELLAR_API_KEY)",
    )


def add_mode(parser: argparse.ArgumentParser) -> None:
    """Add ``--mode``: when chunks are stored."""
    parser.add_argument(
        "--mode",
        choices=("eager", "lazy"),
        default="eager",
        help="when chunks are stored: each when complete (eager, the default), or when "
        "the device is about to lose it (lazy)",
    )
