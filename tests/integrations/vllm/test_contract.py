"""What vLLM's connector contract asks for, held against the class as it is installed.

Runs with every supported vLLM: .venv's, and others by ``make check-vllm``.
"""

import dataclasses
import inspect

import pytest

pytest.importorskip("vllm")

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    SupportsHMA,
)

from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm import CellarConnector
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.testing.oracle.events import Arrive, Finish, Steps
from kvcellar.testing.oracle.layouts import build
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle
from kvcellar.versions import engine_problem

# Members of the base class that are right as they are, and why.
INHERITED = {
    "bind_connector_metadata": "keeps what build_connector_meta made",
    "bind_gpu_block_pool": "bind_kv_cache_manager hands over the pool",
    "clear_connector_metadata": "forgets it",
    "finish_forward": "nothing is done layer by layer",
    "get_block_ids_with_load_errors": "failed loads are named by request",
    "get_external_cache_hit_sources": "all of them are _cache_hit_source",
    "get_finished": "get_transfer_results says more",
    "get_finished_count": "every rank reports",
    "get_kv_connector_kv_cache_events": "events are made by the scheduler's half",
    "get_loaded_kv_cache_group_ids": "every group is loaded",
    "get_mem_pool_context": "the cache needs no memory of another kind",
    "get_required_kvcache_layout": "every layout is served",
    "has_connector_metadata": "as it is",
    "register_finished_partial_tail": "a partial block is not stored",
    "reset_capture_state": "nothing is captured in graphs",
    "restore_kv_caches": "the cache wakes up at its old addresses",
    "role": "as it is",
    "set_host_xfer_buffer_ops": "copies are our own",
    "set_xfer_handshake_metadata": "the one for pipelines hands over more",
    "supports_divergent_local_hybrid_hits": "hits of all groups are one boundary",
    "supports_sleep_mode": "copies end before the cache sleeps",
}
# What only some supported versions have.
NEWER = {"restore_kv_caches", "supports_sleep_mode", "unregister_kv_caches"}

CONTRACT = {
    name
    for base in (KVConnectorBase_V1, SupportsHMA)
    for name in dir(base)
    if not name.startswith("_")
}
OWN = {name for name in vars(CellarConnector) if not name.startswith("_")}


def shape_of(cls, name):
    """How a member is called: its kind, and its parameters without their types."""
    member = inspect.getattr_static(cls, name)
    if isinstance(member, property):
        return "property"
    function = getattr(member, "__func__", member)
    parameters = inspect.signature(function).parameters.values()
    return type(member).__name__, [(p.name, p.kind, p.default) for p in parameters]


def test_this_version_is_in_the_supported_range():
    """The engine under test is one that the connector starts with."""
    assert engine_problem(vllm.__version__) is None


def test_every_member_is_overridden_or_left_on_purpose():
    """A hook that a new vLLM adds fails here until somebody has thought of it."""
    assert set() == CONTRACT - OWN - set(INHERITED)
    assert set() == set(INHERITED) & OWN
    assert NEWER >= set(INHERITED) - CONTRACT


@pytest.mark.parametrize("name", sorted(OWN & CONTRACT))
def test_an_override_is_called_as_its_base_is(name):
    """Same kind, same parameters, same defaults."""
    bases = [b for b in (KVConnectorBase_V1, SupportsHMA) if hasattr(b, name)]
    assert shape_of(CellarConnector, name) in [shape_of(base, name) for base in bases]


def test_nothing_abstract_is_left():
    """Every method that the contract demands is there."""
    assert set() == CellarConnector.__abstractmethods__
    assert issubclass(CellarConnector, SupportsHMA)


def test_the_constructor_takes_what_vllm_passes():
    """By these names: under another one vLLM takes it for the old, shorter one."""
    names = list(inspect.signature(CellarConnector.__init__).parameters)
    assert ["self", "vllm_config", "role", "kv_cache_config"] == names


@pytest.mark.parametrize("role", list(KVConnectorRole), ids=lambda role: role.name)
def test_either_half_can_be_made_and_shut_down(role):
    """From a whole engine configuration, before any cache is there."""
    layout = build("gemma-3-27b", extra_config={"host_memory": "64MiB"})
    connector = CellarConnector(layout.vllm_config, role, layout.worker_config)
    connector.shutdown()


def test_a_layout_names_the_same_groups_as_the_engine():
    """The drafter's group of DeepSeek-V4 is found, and every group has its block."""
    built = build("deepseek-v4-flash-mtp", extra_config={"host_memory": "64MiB"})
    groups = built.worker_config.kv_cache_groups
    layout = layout_from_kv_cache_config(built.worker_config, has_drafter=True)
    drafts = [i for i, group in enumerate(groups) if group.is_eagle_group]
    assert drafts == [g.group_id for g in layout.groups if g.is_draft]
    assert 1 == len(drafts)
    for group in layout.groups:
        spec = groups[group.group_id].kv_cache_spec
        assert spec.block_size == group.tokens_per_block


@pytest.fixture
def engine():
    """A scheduler whose host memory holds a prompt."""
    oracle = make_oracle(OracleOptions("llama-3.1-8b", meddles=False))
    oracle.apply(Arrive("r1", (("p", 0, 130),), new_tokens=1))
    oracle.apply(Finish())
    assert oracle.planner.index.nodes
    yield oracle
    oracle.close()


def test_shaking_hands_again_keeps_what_host_memory_holds(engine):
    """As vLLM 0.33 does when it wakes up: the same planner, with the same nodes."""
    side = engine.scheduler.connector.scheduler_side
    planner, num_nodes = side.offloader, len(side.offloader.index.nodes)
    shake_hands(engine, engine._worker.get_handshake_metadata())
    assert planner is side.offloader
    assert num_nodes == len(planner.index.nodes)


def test_other_facts_at_a_second_handshake_are_refused(engine):
    """The planner was made for those of the first."""
    hand = engine._worker.get_handshake_metadata()
    twice = dataclasses.replace(hand, facts=2 * hand.facts)
    with pytest.raises(IncompatibleError, match="have changed"):
        shake_hands(engine, twice)


def test_no_copy_runs_on_while_the_cache_sleeps(engine):
    """What is in flight has ended when the hook returns."""
    engine.transfers.slowness = 1.0
    engine.apply(Arrive("r2", (("q", 0, 130),), new_tokens=1))
    engine.apply(Steps(3))
    assert engine.transfers.num_in_flight
    engine._worker.unregister_kv_caches()
    assert 0 == engine.transfers.num_in_flight
    engine.transfers.slowness = 0.0
    engine.apply(Finish())


def shake_hands(engine, hand):
    """Tell the scheduler's half what the one rank found."""
    engine.scheduler.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): hand})
