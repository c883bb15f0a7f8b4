"""Behind vLLM's ``MultiConnector``: every hook, and what the other child does to us."""

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorLogging
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiConnector,
    MultiKVConnectorMetadata,
)
from vllm.v1.request import RequestStatus

from kvcellar.integrations.vllm.messages import CellarMetadata
from kvcellar.testing.oracle.events import Abort, Arrive, Finish, Forget, Steps
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle
from kvcellar.transfer.jobs import Direction

PROMPT = (("p", 0, 130),)  # eight chunks of 16 tokens, and two tokens


@pytest.fixture
def pair():
    """An engine with two of ours side by side."""
    options = OracleOptions("llama-3.1-8b", num_connectors=2, meddles=False)
    oracle = make_oracle(options)
    for transfers in oracle.all_transfers:
        transfers.slowness = 0.0
    yield oracle
    oracle.close()


def submitted_by(oracle, number):
    """Jobs that one child's worker half submits from now on."""
    jobs, submit = [], oracle.all_transfers[number].submit
    oracle.all_transfers[number].submit = lambda job: (jobs.append(job), submit(job))[1]
    return jobs


def stores_of_first_only(oracle):
    """The first child holds the prompt; what the second one copied has failed."""
    oracle.all_transfers[1].failure_rate = 1.0
    oracle.apply(Arrive("r1", PROMPT, new_tokens=1))
    oracle.apply(Steps(8))
    oracle.all_transfers[1].failure_rate = 0.0
    oracle.apply(Forget(1.0, seed=0))
    assert [8, 0] == [len(p.index.nodes) for p in oracle.planners]


def test_both_halves_are_children_and_metadata_is_theirs(pair):
    """One ``MultiConnector`` per role; each step's metadata holds one per child."""
    assert isinstance(pair.scheduler.connector, MultiConnector)
    assert isinstance(pair._worker, MultiConnector)
    pair.apply(Arrive("r1", PROMPT, new_tokens=2))
    output = pair.scheduler.schedule()
    metadata = output.kv_connector_metadata
    assert isinstance(metadata, MultiKVConnectorMetadata)
    assert [CellarMetadata] * 2 == [type(one) for one in metadata.metadata]
    assert [1, 1] == [len(one.stores) for one in metadata.metadata]


def test_the_first_child_with_tokens_loads_them(pair):
    """The second one is told that nothing is loaded, and drops its promise."""
    for name in ("r1", "r2"):
        pair.apply(Arrive(name, PROMPT, new_tokens=1))
        pair.apply(Steps(10))
        pair.apply(Forget(1.0, seed=0))
    pair.apply(Finish())
    assert [128, 0] == [p.counters.loaded_tokens for p in pair.planners]
    assert not any(pair.held().values())


def test_the_second_child_loads_what_the_first_does_not_have(pair):
    """And the first one stores it then, once its tokens are known to be computed."""
    pair.all_transfers[0].failure_rate = 1.0
    pair.apply(Arrive("r1", PROMPT, new_tokens=1))
    pair.apply(Steps(8))
    pair.all_transfers[0].failure_rate = 0.0
    pair.apply(Forget(1.0, seed=0))
    pair.apply(Arrive("r2", PROMPT, new_tokens=1))
    pair.apply(Finish())
    assert [0, 128] == [p.counters.loaded_tokens for p in pair.planners]
    assert [8, 8] == [len(p.index.nodes) for p in pair.planners]


def test_an_abort_during_the_other_child_s_load_stores_nothing(pair):
    """The engine counts the tokens as computed, and they have not arrived."""
    stores_of_first_only(pair)
    pair.all_transfers[0].slowness = 1.0
    jobs = submitted_by(pair, 1)
    pair.apply(Arrive("r2", PROMPT, new_tokens=1))
    pair.apply(Steps(3))
    status = pair.scheduler.requests["r2"].status
    assert status is RequestStatus.WAITING_FOR_REMOTE_KVS
    pair.apply(Abort("r2"))
    pair.apply(Steps(3))
    pair.all_transfers[0].slowness = 0.0
    pair.apply(Finish())
    assert [] == [job for job in jobs if job.direction is Direction.STORE]
    assert 0 == len(pair.planners[1].index.nodes)


def test_statistics_reach_the_front_end(pair):
    """Where they are rebuilt, the children's classes are found by name."""
    pair.apply(Arrive("r1", PROMPT, new_tokens=1))
    pair.scheduler.schedule()
    stats = pair.scheduler.connector.get_kv_connector_stats()
    assert {"CellarConnector"} == set(stats.data)
    logging = KVConnectorLogging(pair.layout.vllm_config.kv_transfer_config)
    logging.observe(stats.to_dict())
    rebuilt = logging.transfer_stats_accumulator
    assert 2 * pair.planner.slabs.geometry.arena_bytes
    assert stats.data["CellarConnector"].data == rebuilt.data["CellarConnector"].data
    found = KVConnectorFactory.get_connector_class_by_name("CellarConnector")
    assert found is type(pair.scheduler.connector.sub_connectors[0])


def test_a_reset_reaches_both_children(pair):
    """Nothing of the old weights is left in either."""
    pair.apply(Arrive("r1", PROMPT, new_tokens=1))
    pair.apply(Finish())
    assert [8, 8] == [len(p.index.nodes) for p in pair.planners]
    assert pair.scheduler.reset_prefix_cache(reset_connector=True)
    assert [0, 0] == [len(p.index.nodes) for p in pair.planners]


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["three-windows", "qwen3-next", "deepseek-v4-flash"])
def test_a_random_run_with_two_children(name, mode):
    """No wrong byte, no leak, whichever child loads."""
    options = OracleOptions(
        name, mode, seed=5, failure_rate=0.02, num_connectors=2, async_scheduling=True
    )
    oracle = make_oracle(options)
    try:
        figures = oracle.run(200)
    finally:
        oracle.close()
    assert figures.stored_chunks > 0
