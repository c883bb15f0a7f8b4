"""The ``kvcellar`` command: parse, run one subcommand, turn errors into exit codes."""

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Sequence

import kvcellar
from kvcellar.cli import (
    bench_command,
    demo_command,
    doctor_command,
    plan_command,
    replay_command,
    serve_command,
    top_command,
    why_command,
)
from kvcellar.cli.parser import EXIT_USAGE, OneLineParser, told
from kvcellar.errors import CellarError, ConfigError

EXIT_OK, EXIT_FAILED = 0, 1
# Own checks refuse a negative value better than argparse, which takes it for an option.
_CHECKED_BY_PLAN = {f"--{name}" for name in plan_command.VALUES}
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

_COMMANDS = (
    serve_command,
    plan_command,
    doctor_command,
    demo_command,
    replay_command,
    bench_command,
    top_command,
    why_command,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 is success, 1 a failure, 2 a wrong use or setting, 130 an interruption, 141 a
    reader of the output that has gone; a server that ends by itself passes on its own
    exit status.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = build_parser()
    options, vllm_arguments = parse(parser, given)
    _log_to_stderr()
    try:
        exit_code = int(options.run(options, vllm_arguments))
        sys.stdout.flush()  # here, where a reader that has gone is no surprise
        return exit_code
    except ConfigError as error:
        return _fail(error, EXIT_USAGE)
    except CellarError as error:
        return _fail(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:  # what reads the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands; each stores its function as ``run``."""
    parser = OneLineParser(
        prog="kvcellar",
        description="Keep the KV cache of a vLLM server in host memory and give it "
        "back when a prompt returns.",
        allow_abbrev=False,
    )
    version = f"kvcellar {kvcellar.__version__}"
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


def parse(
    parser: argparse.ArgumentParser, given: list[str]
) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """Read a command line: ours, and what is vLLM's.

    Returns:
        Our options, and what we do not know together with all after ``--``.

    Raises:
        SystemExit: wrong use, once the reason has been printed.
    """
    own, verbatim = given, []
    if "--" in given:
        split = given.index("--")
        own, verbatim = given[:split], given[split + 1 :]
    options, unknown = parser.parse_known_args(_with_negative_values(own))
    if unknown and getattr(options, "needs_separator", False):
        words = _unknown_words(tuple(unknown), options)
        parser.error(f"{words}; a server's come after --")
    vllm_arguments = (*unknown, *verbatim)
    if vllm_arguments and not options.takes_vllm_arguments:
        parser.error(_unknown_words(vllm_arguments, options))
    return options, vllm_arguments


def _unknown_words(words: tuple[str, ...], options: argparse.Namespace) -> str:
    """What is not known, and the option that it may have been meant for."""
    internal = {"command", "run", "takes_vllm_arguments", "needs_separator"}
    ours = vars(options).keys() - internal
    known = [f"--{name.replace('_', '-')}" for name in sorted(ours)]
    given = next((w.partition("=")[0] for w in words if w.startswith("--")), "")
    near = difflib.get_close_matches(given, known, n=1) if given else []
    hint = f"; did you mean {near[0]}" if near else ""
    return (
        f"unrecognized arguments: {' '.join(words)}{hint}; see kvcellar "
        f"{options.command} --help"
    )


def _with_negative_values(given: list[str]) -> list[str]:
    """Join ``--host-memory -3GiB``, so that it is read as a value."""
    checked = _CHECKED_BY_PLAN if given[:1] == ["plan"] else {"--host-memory"}
    joined: list[str] = []
    for word in given:
        is_negative = word.startswith("-") and word[1:2].isdigit()
        if is_negative and joined and joined[-1] in checked:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("kvcellar: %(message)s"))
    package_logger = logging.getLogger(kvcellar.__name__)
    package_logger.handlers = [handler]
    package_logger.setLevel(logging.INFO)
    package_logger.propagate = False


def _fail(reason: object, exit_code: int) -> int:
    print(told(reason), file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
