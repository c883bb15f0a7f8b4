"""What would be the first to go is not let in, and what is worth less goes for it."""

import pytest
from checkpoints import add_checkpoint
from ghost_entries import remembered
from hypothesis import given
from hypothesis import strategies as st
from layouts import FULL, STATE, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.index.checks import check_index
from kvcellar.index.evictable import NEVER
from kvcellar.index.index import Index
from kvcellar.index.newcomers import Newcomer, Newcomers
from kvcellar.index.policies.classes import PriorityClasses
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.lhd import LhdPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.reuse import ReuseTimes
from kvcellar.index.slabs import SlabAllocator
from kvcellar.layout.host import plan_geometry

pytestmark = pytest.mark.interpreted  # a policy of its own

SIZE = 100  # bytes of a chunk, and of a checkpoint where there are any
LAYOUTS = {
    "chunks": layout_of(group(0, FULL, 512, None, SIZE), hash_tokens=512, alignment=512)
} | {
    name: layout_of(
        group(0, FULL, 512, None, SIZE),
        group(1, kind, 512, span, SIZE),
        hash_tokens=512,
        alignment=512,
    )
    for name, kind, span in (("windows", WINDOW, 513), ("states", STATE, None))
}


class Selective(KeyedPolicy):
    """Whoever has the smallest key goes first, or does not come in."""

    is_selective = True

    def another(self):
        return Selective(self._key)


def fewest_uses():
    """Of equals the longest unused."""
    return Selective(lambda node: (node.num_uses, node.last_use))


def latest_first():
    return Selective(lambda node: (-node.last_use, 0.0))


def lhd():
    return LhdPolicy(ReuseTimes(1000), checkpoint_chunks=1.0)


def make_index(name, num_chunks, num_checkpoints, live):
    """With room for so many of both; for the chunks alone where they suffice."""
    layout = LAYOUTS[name]
    num_cells = num_chunks + num_checkpoints * (name != "chunks")
    slabs = SlabAllocator(plan_geometry(layout, num_cells * SIZE))
    return Index(HybridRules(layout), slabs, live, LruPolicy())


def keys(text):
    return [text[:end].encode() for end in range(1, len(text) + 1)]


def admit(index, text, now, priority=0, *, uses=None, cuts=None):
    """How much of a path comes in; the index is sound and its tip still held."""
    tip = index.deepest_known(keys(text), len(text))
    uses = [(len(text), now)] if uses is None else uses
    newcomer = Newcomer(tip, keys(text), uses, priority, cuts)
    admitted = Newcomers(index).admit(newcomer)
    check_index(index)
    assert tip is index.deepest_known(keys(text), len(text))
    assert tip.depth <= admitted <= len(text)
    if index.ghosts is not None:
        assert remembered(index.ghosts).keys().isdisjoint(index.nodes)
    return admitted


def store(index, text, now, *, num_uses=1, priority=0):
    """A prompt is stored, with a checkpoint at its end, and used so often."""
    tip = index.deepest_known(keys(text), len(text))
    index.pin(tip)
    added = index.add_path(tip, keys(text)[tip.depth :])
    end = added[-1] if added else tip
    for node in added:
        node.priority = priority
    index.touch(end, now)
    if end.needs_checkpoint and end.checkpoint is None:
        assert add_checkpoint(index, end)
    index.publish(added)
    for _ in range(num_uses):
        index.count_use(end, now)
    index.unpin(tip)


def evict(index, text):
    while text[:1].encode() in index.nodes:
        assert index.evict_one()


def held(index):
    """The ends of what is there."""
    return sorted(n.key.decode() for n in index.nodes.values() if n.is_leaf)


def uses(index, text):
    """Uses that are remembered of each chunk of a prompt; 0 for none."""
    found = remembered(index.ghosts)
    return [found[key][3] if key in found else 0 for key in keys(text)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_lru_lets_in_whatever_comes(name):
    """What it pushes out goes when it is stored, not before."""
    index = make_index(name, 4, 1, LruPolicy())
    store(index, "abcd", 1.0)
    assert 4 == admit(index, "wxyz", 2.0)
    assert ["abcd"] == held(index)


@pytest.mark.parametrize("name", LAYOUTS)
def test_where_there_is_room_a_newcomer_comes_in_whatever_it_is_worth(name):
    """Room for two prompts of four chunks, and their checkpoints."""
    index = make_index(name, 8, 2, latest_first())
    store(index, "abcd", 1.0)
    assert 4 == admit(index, "wxyz", 2.0)
    assert ["abcd"] == held(index)
    assert {} == remembered(index.ghosts)


@pytest.mark.parametrize("name", LAYOUTS)
def test_who_would_be_the_first_to_go_stays_out_and_pushes_nothing_out(name):
    """Beside what it shares, which is there; and its use is remembered."""
    index = make_index(name, 4, 1, latest_first())
    store(index, "abcd", 1.0)
    assert 0 == admit(index, "wxyz", 2.0)
    assert 2 == admit(index, "abyz", 3.0)
    assert ["abcd"] == held(index)
    assert [1, 1, 1, 1] == uses(index, "wxyz")


@pytest.mark.parametrize(
    ("name", "admitted"), [("chunks", 2), ("windows", 2), ("states", 0)]
)
def test_what_is_worth_less_goes_and_then_the_newcomer_is_cut_off(name, admitted):
    """Room for two of four chunks, with a checkpoint; a state is had at the end only,
    so there all comes in or nothing."""
    index = make_index(name, 6, 2, fewest_uses())
    store(index, "abcd", 1.0, num_uses=2)
    store(index, "xy", 2.0)
    assert admitted == admit(index, "mnop", 3.0)
    assert ["abcd"] == held(index)
    assert [0] * admitted + [1] * (4 - admitted) == uses(index, "mnop")
    assert [1, 1] == uses(index, "xy")


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_more_goes_than_a_newcomer_takes(name):
    """Of two prompts that are worth less the older one."""
    index = make_index(name, 8, 4, fewest_uses())
    for now, text in enumerate(("ab", "cd", "ef", "gh")):
        store(index, text, float(now))
    assert 2 == admit(index, "xy", 9.0)
    assert ["cd", "ef", "gh"] == held(index)


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_a_newcomer_hangs_on_stays_while_room_is_made(name):
    """Though it is worth less than all others, and may go again afterwards."""
    index = make_index(name, 4, 2, fewest_uses())
    store(index, "ab", 1.0)
    store(index, "xy", 2.0, num_uses=2)
    assert 2 == admit(index, "abcd", 3.0)
    assert ["ab", "xy"] == held(index)
    assert index.order.next_leaf(None).key == b"ab"


@pytest.mark.parametrize("name", LAYOUTS)
def test_who_was_turned_away_comes_in_once_it_has_been_used_enough(name):
    """The third time it is worth as much as what was used thrice, but longer ago."""
    index = make_index(name, 8, 2, fewest_uses())
    store(index, "often", 0.0, num_uses=9)
    store(index, "abc", 0.0, num_uses=3)
    for now, previous, num_uses in ((1.0, NEVER, 1), (1.5, 1.0, 2)):
        assert 0 == admit(index, "xyz", now)
        pasts = remembered(index.ghosts).values()
        assert {(now, previous, num_uses)} == {(p[0], p[1], p[3]) for p in pasts}
    assert 3 == admit(index, "xyz", 2.0)
    assert ["often"] == held(index)
    store(index, "xyz", 2.0)
    assert 3 == index.nodes[b"xyz"].num_uses


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_prompt_is_cut_where_what_is_known_of_it_changes(name):
    """Its first half was used thrice, its second half is new. What comes in has its
    old history until it is stored. Where nobody can resume in between nothing comes
    in, and each half is remembered by its own uses."""
    index = make_index(name, 9, 3, fewest_uses())
    store(index, "often", 0.0, num_uses=9)
    store(index, "ab", 0.0, num_uses=3)
    evict(index, "ab")
    store(index, "wx", 1.0, num_uses=2)
    store(index, "yz", 2.0, num_uses=2)
    if name == "states":
        assert 0 == admit(index, "abmn", 3.0)
        assert ["often", "wx", "yz"] == held(index)
        assert [4, 4, 1, 1] == uses(index, "abmn")
    else:
        assert 2 == admit(index, "abmn", 3.0)
        assert ["often", "yz"] == held(index)
        assert [3, 3, 1, 1] == uses(index, "abmn")
        store(index, "ab", 3.0)
        assert 4 == index.nodes[b"ab"].num_uses


@pytest.mark.parametrize(
    ("name", "cuts", "admitted"),
    [
        ("chunks", None, 2),
        ("chunks", [1, 4], 2),
        ("windows", [2, 4], 2),
        ("windows", [1, 4], 1),
        ("windows", [4], 0),
        ("states", [2, 4], 0),
    ],
)
def test_a_path_is_cut_where_a_prompt_ends_on_it(name, cuts, admitted):
    """Its first half was used thrice, all once. Where resuming takes a checkpoint,
    no deeper than where there can be one."""
    index = make_index(name, 5, 2, fewest_uses())
    store(index, "ab", 0.0, num_uses=2)
    store(index, "xy", 0.0, num_uses=2)
    uses = [(2, 1.0), (2, 2.0), (4, 3.0)]
    assert admitted == admit(index, "mnop", 4.0, uses=uses, cuts=cuts)


@pytest.mark.parametrize("text", ["wxyz", "vwxyz"])
def test_an_end_too_short_to_be_remembered_fares_as_what_is_before_it(text):
    """One chunk in two is, and the fifth of them is alone. Else a prompt with a state
    would be new for ever."""
    index = make_index("states", 10, 2, fewest_uses())
    index.ghosts.sample = 2
    store(index, "often", 0.0, num_uses=9)
    store(index, "abcde", 0.0, num_uses=3)
    assert [0, 0] == [admit(index, text, now) for now in (1.0, 2.0)]
    assert 0 == admit(index, text[:2] + "mn", 3.0)  # its end is long enough, and new
    assert len(text) == admit(index, text, 4.0)


@pytest.mark.parametrize(
    ("of_held", "of_newcomer", "admitted"), [(0, 0, 0), (0, 1, 4), (1, 0, 0), (1, 1, 0)]
)
def test_a_newcomer_is_weighed_within_its_class(of_held, of_newcomer, admitted):
    """A higher one comes in whatever it is worth; a lower one stays out."""
    index = make_index("chunks", 4, 0, PriorityClasses(fewest_uses()))
    store(index, "abcd", 1.0, num_uses=2, priority=of_held)
    assert admitted == admit(index, "wxyz", 2.0, of_newcomer)
    assert ([] if admitted else ["abcd"]) == held(index)


def test_a_lower_class_gives_way_first():
    """However often it was used."""
    index = make_index("chunks", 6, 0, PriorityClasses(fewest_uses()))
    store(index, "abcd", 1.0, priority=1)
    store(index, "xy", 2.0, num_uses=9, priority=-1)
    assert 2 == admit(index, "mnop", 0.0)
    assert ["abcd"] == held(index)


PROMPTS = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=7), st.integers(1, 3)), max_size=25
)


@pytest.mark.parametrize("live", [fewest_uses, latest_first, lhd])
@pytest.mark.parametrize("name", LAYOUTS)
@given(prompts=PROMPTS)
def test_what_comes_in_finds_its_room(name, live, prompts):
    """Whatever came before: storing it, with a resume point, pushes no more out."""
    index = make_index(name, 7, 2, live())
    for now, (text, num_uses) in enumerate(prompts):
        tip = index.deepest_known(keys(text), len(text))
        admitted = admit(index, text, float(now))
        num_evicted = index.counters.evicted_chunks
        if admitted > tip.depth:
            store(index, text[:admitted], float(now), num_uses=num_uses)
        assert num_evicted == index.counters.evicted_chunks
        check_index(index)
