"""The radix tree knows of each path what was entered of it."""

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.policies.runs import Run, find

STEPS = st.lists(st.integers(0, 2), min_size=1, max_size=7)


def keys_of(steps):
    return [bytes(steps[: i + 1]) for i in range(len(steps))]


def enter(root, keys):
    """All of a path; it ends in a run of its own."""
    end, num_shared = find(root, keys)
    if num_shared < len(end.keys):
        end = end.split(num_shared)
    if end.depth < len(keys):
        end.append(keys[end.depth :])


@given(paths=st.lists(STEPS, max_size=12), asked=STEPS)
def test_a_path_is_known_as_far_as_it_was_entered(paths, asked):
    """Whatever branches off it, wherever, and if it ends inside a run."""
    root = Run([], None)
    for steps in paths:
        enter(root, keys_of(steps))
    entered = {key for steps in paths for key in keys_of(steps)}
    keys = keys_of(asked)
    end, num_shared = find(root, keys)
    num_known = end.depth - len(end.keys) + num_shared
    assert num_known == sum(key in entered for key in keys)
    assert end.keys[:num_shared] == keys[num_known - num_shared : num_known]
