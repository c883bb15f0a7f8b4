"""Whole paths at once leave the same index as their chunks one by one."""

import pytest
from checkpoints import add_checkpoint
from hypothesis import given
from hypothesis import strategies as st
from layouts import LAYOUTS

from kvcellar.attention.hybrid import HybridRules
from kvcellar.index.checks import check_index
from kvcellar.index.index import Index
from kvcellar.index.policies.lrfu import LrfuPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.slabs import SlabAllocator
from kvcellar.layout.host import plan_geometry

MOST_CHUNKS = 12  # in the arena, so that paths push each other out

prompts = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=10), st.booleans()), max_size=12
)


def make_index(name, policy):
    rules = HybridRules(LAYOUTS[name])
    num_bytes = MOST_CHUNKS * (rules.chunk_bytes + rules.largest_checkpoint[0] // 4)
    slabs = SlabAllocator(plan_geometry(LAYOUTS[name], num_bytes))
    return Index(rules, slabs, policy(), LruPolicy())


def at_once(index, parent, keys):
    return index.add_path(parent, keys)


def one_by_one(index, parent, keys):
    added = []
    for key in keys:
        found = index.add_path(added[-1] if added else parent, [key])
        if not found:
            break
        added += found
    return added


def store(index, add, text, now, *, has_checkpoint):
    """A prompt comes, is stored as far as there is room, and ends."""
    hashes = [text[:end].encode() for end in range(1, len(text) + 1)]
    stride = index.hashes_per_chunk
    spread = [key for key in hashes for _ in range(stride)]
    known = index.deepest_known(spread, len(hashes))
    index.pin(known)
    added = add(index, known, hashes[known.depth :])
    end = added[-1] if added else known
    index.touch(end, now)
    if has_checkpoint and end.needs_checkpoint and end.checkpoint is None:
        add_checkpoint(index, end)
    index.publish(added)
    index.count_use(end, now)
    index.unpin(known)


def seen(index):
    """Everything that decides what happens next."""
    histories = {
        key: (node.last_use, node.latest, node.previous, node.score, node.num_uses)
        for key, node in index.nodes.items()
    }
    resumable = {key for key, node in index.nodes.items() if node.is_resumable}
    return histories, resumable, index.counters, index.cells.slabs.used_bytes


@pytest.mark.parametrize("policy", [LruPolicy, LrfuPolicy])
@pytest.mark.parametrize("name", ["full", "gemma", "odd-window", "deepseek-v4-like"])
@given(prompts=prompts)
def test_a_path_at_once_is_its_chunks_one_by_one(name, policy, prompts):
    """Nodes, histories, evictions and bytes agree after every prompt."""
    whole, single = make_index(name, policy), make_index(name, policy)
    for now, (text, has_checkpoint) in enumerate(prompts):
        for index, add in ((whole, at_once), (single, one_by_one)):
            store(index, add, text, float(now), has_checkpoint=has_checkpoint)
            check_index(index)
        assert seen(whole) == seen(single)


@pytest.mark.parametrize("name", ["full", "odd-window"])
def test_a_path_stops_where_room_ends(name):
    """Nothing of a chunk that does not fit is taken."""
    index = make_index(name, LruPolicy)
    added = index.add_path(index.root, [b"%d" % n for n in range(100)])
    used = len(added) * index.rules.chunk_bytes
    assert 0 < len(added) < 100
    assert used == index.cells.slabs.used_bytes
    check_index(index)
