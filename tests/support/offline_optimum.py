"""The most tokens that any memory could have found, by trying everything."""

import itertools

from kvcellar.attention.hybrid import HybridRules
from kvcellar.replay.coarse import unit_tokens


def optimum_tokens(trace, layout, num_bytes):
    """Try every way to resume every prompt; the most tokens of one that fits.

    Args:
        num_bytes: memory in which everything that is found must have been held since
            somebody computed or found it last.
    """
    unit = unit_tokens(layout, trace.block_tokens)
    passes = [_Pass(trace, request, layout, unit) for request in trace.requests]
    best = 0
    for resumed in itertools.product(*(range(p.num_wanted + 1) for p in passes)):
        found = sum(resumed) * unit
        if found > best and _fits(passes, resumed, num_bytes):
            best = found
    return best


class _Pass:
    """One prompt: what resuming it somewhere needs, and what it then computes."""

    def __init__(self, trace, request, layout, unit):
        ids, self._block_tokens = list(request.blocks), trace.block_tokens
        self._rules, self._unit = HybridRules(layout), unit
        self._ids = ids
        self._num_tokens = len(ids) * trace.block_tokens
        most = min(request.num_prompt_tokens - 1, self._num_tokens)
        self.num_wanted = most // unit

    def _key(self, position, end):
        """The item of a group that ends at a token, the same for equal prefixes."""
        block, place = divmod(end - 1, self._block_tokens)
        return position, self._ids[block], place

    def _items(self, position, blocks):
        group = self._rules.layout.groups[position]
        size = group.tokens_per_block
        return {
            self._key(position, (block + 1) * size): group.payload_bytes
            for block in blocks
        }

    def needed(self, resumed):
        """Items and their bytes that resuming behind so many chunks reads."""
        items = {}
        if resumed:
            boundary = resumed * self._unit
            for position in self._rules.chunk_positions:
                size = self._rules.layout.groups[position].tokens_per_block
                # A chunk is kept whole or not at all: all its blocks have its key.
                for chunk in range(resumed):
                    key = self._key(position, (chunk + 1) * self._unit)
                    group = self._rules.layout.groups[position]
                    items[key] = self._unit // size * group.payload_bytes
            for position, blocks in self._rules.checkpoint_blocks(boundary):
                items |= self._items(position, blocks)
        return items

    def there(self, resumed):
        """Items that are there afterwards: found, or computed."""
        items = set(self.needed(resumed))
        for position in self._rules.chunk_positions:
            for chunk in range(self._num_tokens // self._unit):
                items.add(self._key(position, (chunk + 1) * self._unit))
        for position in self._rules.checkpoint_positions:
            size = self._rules.layout.groups[position].tokens_per_block
            first = resumed * self._unit // size
            items |= set(self._items(position, range(first, self._num_tokens // size)))
        return items


def _fits(passes, resumed, num_bytes):
    """Whether everything found can have been held between two requests."""
    held = [{} for _ in passes]  # after each request
    there = [p.there(r) for p, r in zip(passes, resumed, strict=True)]
    for number, (one, place) in enumerate(zip(passes, resumed, strict=True)):
        for item, size in one.needed(place).items():
            since = [i for i in range(number) if item in there[i]]
            if not since:
                return False
            for slot in range(since[-1], number):
                held[slot][item] = size
    return all(sum(items.values()) <= num_bytes for items in held)
