"""Reading single options out of the arguments meant for vLLM.

vLLM parses its own arguments; these helpers only find the few that decide whether a
start can succeed. Underscores and dashes in an option's name mean the same there.
Source: vLLM 0.32, utils/argparse_utils.py, ``FlexibleArgumentParser``.
"""

from collections.abc import Sequence


def option_value(arguments: Sequence[str], name: str) -> str | None:
    """The last value given to ``name``, as ``--name VALUE`` or ``--name=VALUE``.

    Returns:
        None if the option is not there or has no value.
    """
    found = None
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if _normalised(option) != name:
            continue
        following = arguments[position + 1 : position + 2]
        found = value if equals else (following[0] if following else found)
    return found


def has_option(arguments: Sequence[str], name: str) -> bool:
    """Whether ``name`` is given, with or without a value."""
    return any(_normalised(given.partition("=")[0]) == name for given in arguments)


def _normalised(option: str) -> str:
    return option.replace("_", "-") if option.startswith("--") else option
