"""How a value is read that stands in ``kv_connector_extra_config``.

Each takes the value and its key, for the message, and raises ``ConfigError`` where the
value cannot be used.
"""

import math
from collections.abc import Callable

from kvcellar.config.refusal import refusal

Reader = Callable[[object, str], object]


def int_from(smallest: int) -> Callable[[object, str], int]:
    """A whole number of at least ``smallest``."""

    def read(value: object, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
            raise refusal(key, value, f"write a whole number of at least {smallest}")
        return value

    return read


def switch(value: object, key: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise refusal(key, value, "write true or false, without quotes")
    return value


def share(value: object, key: str) -> float:
    """A number that is not negative."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]  # a number
        raise refusal(key, value, "write a number that is not negative, such as 0.25")
    return float(value)  # type: ignore[arg-type]


def fraction(value: object, key: str) -> float:
    """A number from 0 to 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:  # type: ignore[operator]  # a number
        raise refusal(key, value, "write a number from 0 to 1, such as 0.25")
    return float(value)  # type: ignore[arg-type]


def one_of(*allowed: str) -> Callable[[object, str], str]:
    """One of these words."""

    def read(value: object, key: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            listed = " or ".join(f'"{name}"' for name in allowed)
            raise refusal(key, value, f"write {listed}")
        return value

    return read


def lazy_switch(value: object, key: str) -> str:
    """The mode, by a switch of vLLM's."""
    return "lazy" if switch(value, key) else "eager"


def prompt_only_switch(value: object, key: str) -> bool:
    """Whether answers are stored, by a switch of vLLM's that says the opposite."""
    return not switch(value, key)
