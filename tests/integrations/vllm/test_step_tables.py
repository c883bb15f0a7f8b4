"""Block tables as the planner reads them while a step is planned."""

from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

from kvcellar.integrations.vllm.compat import StepTables


def tables(handed_over):
    """Group 0 keeps entries in blocks of 16, group 1 a running state."""
    rows = [
        {"r": [SimpleNamespace(block_id=n) for n in numbers]}
        for numbers in ([3, 4, 5, 6], [0, 0, 7, 8])
    ]
    managers = [SimpleNamespace(req_to_blocks=row) for row in rows]
    return StepTables(managers, "r", handed_over, {1: 16})


def test_a_state_is_read_only_where_it_was_handed_over():
    """The table's own block may hold the state of a token inside the block."""
    found = tables([(1, 9, 48)])
    assert [3, 4, 5, 6, 0] == found.block_ids(0, range(5))
    assert [0, 0, 9, 0] == found.block_ids(1, range(4))
    assert [48] == found.boundaries


def test_nothing_is_handed_over():
    """Then no boundary of the state's group can be stored."""
    found = tables([])
    assert [0] * 4 == found.block_ids(1, range(4))
    assert [] == found.boundaries
