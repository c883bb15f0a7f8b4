"""Reading what users write: sizes and lengths with commas between."""

from kvcellar.config import parse_bytes
from kvcellar.errors import ConfigError


def page_sizes_of(text: str) -> tuple[int, ...]:
    """Read ``"4KiB,64KiB"``.

    Raises:
        ConfigError: an entry is not a size.
    """
    return tuple(parse_bytes(word.strip(), "page_bytes") for word in text.split(","))


def lengths_of(text: str | None) -> tuple[int, ...] | None:
    """Read ``"512,4096"``; None stays None.

    Raises:
        ConfigError: an entry is not a whole number.
    """
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise ConfigError(
            f"prompt_tokens={text!r} is not understood; write whole numbers as 512,4096"
        )
    return tuple(int(word) for word in words)
