"""Reading single options out of the arguments meant for vLLM.

vLLM parses its own arguments; these helpers only find the few that decide whether a
start can succeed. Underscores and dashes in an option's name mean the same there, a
unique beginning stands for the whole name, and ``--option.key`` sets one key of an
option whose value is an object.
Source: vLLM 0.32, utils/argparse_utils.py, ``FlexibleArgumentParser``.
"""

from collections.abc import Sequence

# Options of their own that begin like one that is looked for here.
_OTHER_OPTIONS = frozenset({"--data-parallel-size"})
_SHORTEST_BEGINNING = len("--x")


def option_value(arguments: Sequence[str], *names: str) -> str | None:
    """The last value given to an option, as ``--name VALUE`` or ``--name=VALUE``.

    Args:
        arguments: vLLM's.
        names: the option's long name first, then others for it.

    Returns:
        None if the option is not there or has no value.
    """
    found = None
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if not any(_means(option, name) for name in names):
            continue
        following = arguments[position + 1 : position + 2]
        found = value if equals else (following[0] if following else found)
    return found


def option_parts(arguments: Sequence[str], name: str) -> dict[str, str]:
    """Values given to single keys of an option: ``--name.key VALUE``, by key."""
    parts: dict[str, str] = {}
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        option, dot, key = option.partition(".")
        if not dot or not _means(option, name):
            continue
        following = arguments[position + 1 : position + 2]
        parts[key] = value if equals else (following[0] if following else "")
    return parts


def has_option(arguments: Sequence[str], name: str) -> bool:
    """Whether ``name`` or a key of it is given, with or without a value."""
    return any(
        _means(given.partition("=")[0].partition(".")[0], name) for given in arguments
    )


def _means(option: str, name: str) -> bool:
    """Whether vLLM's parser would take ``option`` for ``name``, if for anything."""
    option = _normalised(option)
    if option == name:
        return True
    is_beginning = len(option) >= _SHORTEST_BEGINNING and name.startswith(option)
    return option.startswith("--") and is_beginning and option not in _OTHER_OPTIONS


def _normalised(option: str) -> str:
    return option.replace("_", "-") if option.startswith("--") else option
