"""Which prompts may be stored at all."""

from collections import OrderedDict
from collections.abc import Sequence

from kvcellar.config import Settings

REMEMBERED_PER_CHUNK = 4  # keys remembered for each chunk that host memory could hold


class Admission:
    """Lets everything in, or only what an earlier prompt had too.

    The latter writes a fraction of the bytes and gives up what returns just once.

    Args:
        settings: the user's choices.
        num_chunks: that host memory could hold.
    """

    def __init__(self, settings: Settings, num_chunks: int) -> None:
        self._is_open = settings.admission == "all"
        self._most = REMEMBERED_PER_CHUNK * num_chunks
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def admit(self, keys: Sequence[bytes]) -> int | None:
        """A prompt comes for the first time.

        Args:
            keys: one per chunk.

        Returns:
            How many of its chunks may be stored; None for all, and what it decodes.
        """
        if self._is_open:
            return None
        num_seen = next((i for i, k in enumerate(keys) if k not in self._seen), None)
        for key in reversed(keys):  # the last to be forgotten is the first chunk
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return len(keys) if num_seen is None else num_seen
