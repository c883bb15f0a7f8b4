"""Reading what another thread changes, without a lock that it could wait for.

The owner raises a number when it begins to change something and again when it has
ended. A reader that finds the same even number before and after has seen one state.
"""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

MOST_TRIES = 200
_WAIT_SECONDS = 0.001


def read_steadily(
    number: Callable[[], int],
    read: Callable[[], Seen],
    *,
    most_tries: int = MOST_TRIES,
    wait: Callable[[float], object] = time.sleep,
) -> Seen | None:
    """What ``read`` sees while nothing changes.

    Args:
        number: of changes; odd while one is under way.
        read: may see a torn state and may then raise ``RuntimeError``, ``KeyError``,
            ``AttributeError`` or ``AssertionError``; what it returns is thrown away.

    Returns:
        None if it never was steady.
    """
    for _ in range(most_tries):
        before = number()
        if before % 2 == 0:
            try:
                seen = read()
            except (RuntimeError, KeyError, AttributeError, AssertionError):
                if number() == before:
                    raise  # nothing has changed, so it is an error of its own
            else:
                if number() == before:
                    return seen
        wait(_WAIT_SECONDS)
    return None
