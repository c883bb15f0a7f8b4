"""What earns least for its room goes first."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.lhd import LhdPolicy
from kvcellar.index.policies.reuse import NUM_AGES, ReuseTimes, age_band, class_of
from kvcellar.index.policies.runs import Run

NOW = 100.0


class Figures:
    """Densities as given, instead of learnt ones."""

    def __init__(self, density):
        self.now, self.num_prompts = NOW, 0
        self._density = density

    @property
    def density(self):
        return self

    def __getitem__(self, number):
        return [self._density(number, band) for band in range(NUM_AGES)]


def used(depth, age, num_uses=1):
    node = Evictable(depth, NOW - age)
    node.num_uses = num_uses
    return node


def order_of(policy):
    order = []
    while (victim := policy.victim()) is not None:
        policy.remove(victim)
        order.append(victim)
    return order


@pytest.mark.interpreted
def test_the_least_density_goes_first_and_of_equals_the_longest_unused():
    """A class that returns soon stays, one that does not goes."""
    returns = class_of(1, 8)
    policy = LhdPolicy(Figures(lambda number, _: float(number == returns)))
    old, new, once = used(8, 6.0), used(8, 3.0), used(2, 2.0)
    for node in (old, new, once):
        policy.add(node)
    assert [once, old, new] == order_of(policy)
    assert 0 == len(policy)


@pytest.mark.interpreted
def test_where_uses_come_late_the_latest_used_goes_first():
    """What has waited long is nearer to its use."""
    policy = LhdPolicy(Figures(lambda _, band: float(band)))
    nodes = [used(8, age) for age in (60.0, 10.0, 1.0)]
    for node in nodes:
        policy.add(node)
    assert nodes[::-1] == order_of(policy)


@pytest.mark.interpreted
@given(
    nodes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 90)), max_size=20),
    other=st.tuples(st.integers(1, 9), st.integers(0, 90)),
    figures=st.lists(st.integers(0, 5), min_size=7, max_size=7),
)
def test_who_would_be_next_goes_before_all_that_are_here(nodes, other, figures):
    """Of each class that is both ends; asking changes nothing."""
    policy = LhdPolicy(Figures(lambda number, band: figures[(number + band) % 7]))

    def rank(node):
        number = class_of(node.num_uses, node.depth)
        return policy._times.density[number][age_band(NOW - node.last_use)]

    for depth, age in nodes:
        policy.add(used(depth, float(age)))
    victim, node = policy.victim(), used(other[0], float(other[1]))
    least = (math.inf, 0) if victim is None else (rank(victim), victim.last_use)
    assert policy.would_be_next(node) == ((rank(node), node.last_use) < least)
    assert policy.victim() is victim
    if victim is not None:
        oldest = min(n.last_use for n in policy)
        ends = [n for n in policy if n.last_use == oldest]
        assert all(least[0] <= rank(n) for n in ends)


def path(*lengths):
    """Runs below each other, each with a checkpoint at its end; the last one."""
    run, number = Run([], None), 0
    for length in lengths:
        keys = [bytes([number + i]) for i in range(length)]
        run, number = run.append(keys), number + length
        run.has_checkpoint = True
        run.last_use = NOW
    return run


@pytest.mark.interpreted
@pytest.mark.parametrize(("is_lean", "goes"), [(False, "short"), (True, "other")])
def test_a_checkpoint_counts_against_what_it_serves(is_lean, goes):
    """A short run after one that can be resumed at earns little for its checkpoint,
    unless that one is to go anyway."""
    policy = LhdPolicy(
        Figures(lambda *_: 1.0), superseded_first=is_lean, checkpoint_chunks=8.0
    )
    leaves = {"short": path(20, 2), "other": path(6)}
    for leaf in leaves.values():
        policy.add(leaf)
    assert policy.victim() is leaves[goes]


def test_a_run_reaches_to_the_checkpoint_before():
    """One that was given up, or is of use to no other path, is passed."""
    leaf = path(4, 3, 2)
    assert 2 == leaf.reach(past_replaced=False)
    leaf.parent_run.has_checkpoint = False
    assert 5 == leaf.reach(past_replaced=False)
    assert 9 == leaf.reach(past_replaced=True)
    leaf.parent_run.parent_run.append([b"branch"])
    assert 5 == leaf.reach(past_replaced=True)


def test_what_is_learnt_changes_who_goes():
    """The choice is made anew when a prompt has come."""
    times = ReuseTimes(1000)
    policy = LhdPolicy(times)
    old, new = used(8, 90.0), used(8, 1.0)
    for node in (old, new):
        policy.add(node)
    times.now = NOW
    assert policy.victim() is old
    times.density = [list(map(float, range(NUM_AGES)))] * len(times.density)
    times.num_prompts += 1
    assert policy.victim() is new
