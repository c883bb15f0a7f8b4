"""Whether a prompt begins like another one that it must not share anything with."""

from collections import OrderedDict

MOST_OPENINGS = 4096


class Openings:
    """First chunks by their tokens alone; salts, adapters and media change keys."""

    def __init__(self, most: int = MOST_OPENINGS) -> None:
        self._most = most
        self._keys: OrderedDict[int, bytes] = OrderedDict()

    def meets_other(self, opening: int | None, key: bytes) -> bool:
        """Whether these tokens were last seen under another key; this one is now."""
        if opening is None:
            return False
        last = self._keys.get(opening)
        self._keys[opening] = key
        self._keys.move_to_end(opening)
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)
        return last is not None and last != key
