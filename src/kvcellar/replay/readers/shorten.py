"""Values in the messages of the trace readers."""

import reprlib

_shorten = reprlib.Repr()
_shorten.maxstring = 60
_shorten.maxother = 60


def shorten(value: object) -> str:
    """Show a value in a message without filling the screen."""
    return _shorten.repr(value)
