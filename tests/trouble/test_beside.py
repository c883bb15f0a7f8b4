"""Rows about a second connector beside ours, behind vLLM's ``MultiConnector``."""

import pytest

pytest.importorskip("vllm")

from kvcellar.testing.oracle.events import Arrive, Finish, Forget, Steps
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle

PROMPT = (("p", 0, 66),)  # four chunks of 16 tokens, and two tokens


@pytest.fixture
def pair():
    """An engine with two of ours side by side; the first one wins a load."""
    oracle = make_oracle(OracleOptions("llama-3.1-8b", num_connectors=2, meddles=False))
    for transfers in oracle.all_transfers:
        transfers.slowness = 0.0
    yield oracle
    oracle.close()


def test_vllm_46951_blocks_that_another_connector_fills_wait_for_it(pair):
    """64 tokens come through the other: ours are stored when those are computed with.

    A cold request is stored by both, though neither has won it.
    """
    other, ours = pair.all_transfers
    ours.failure_rate = 1.0
    pair.apply(Arrive("cold", PROMPT, new_tokens=1))
    pair.apply(Steps(8))
    assert [4, 0] == [len(p.index.nodes) for p in pair.planners]
    ours.failure_rate = 0.0
    pair.apply(Forget(1.0, seed=0))
    other.slowness = 1.0
    pair.apply(Arrive("warm", PROMPT, new_tokens=1))
    pair.apply(Steps(5))
    assert 0 == pair.planners[1].counters.stored_chunks - 4  # those of the cold one
    other.slowness = 0.0
    pair.apply(Finish())  # every byte that is read is checked
    assert [4, 4] == [len(p.index.nodes) for p in pair.planners]
