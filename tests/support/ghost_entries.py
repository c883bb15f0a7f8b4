"""What is remembered of chunks that have gone, chunk by chunk."""

from kvcellar.index.evictable import Past
from kvcellar.index.ghosts import Ghosts


def remembered(ghosts: Ghosts) -> dict[bytes, Past]:
    """Histories by key, the oldest first; each chunk is in one entry, and counted."""
    pasts: dict[bytes, Past] = {}
    for entry in ghosts._oldest_first:
        assert ghosts._by_first_key[entry.keys[-1]] is entry
        assert pasts.keys().isdisjoint(entry.keys)
        pasts |= dict.fromkeys(entry.keys, entry.past)
    assert len(ghosts._by_first_key) == len(ghosts._oldest_first)
    assert ghosts._num_chunks == len(pasts)
    return pasts
