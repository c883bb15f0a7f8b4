"""What the scheduler makes of the ranks' handshakes, and what it refuses at start."""

import dataclasses
import logging

import pytest

pytest.importorskip("vllm")

from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.messages import RankFacts
from kvcellar.integrations.vllm.ranks import plan_server
from kvcellar.integrations.vllm.scheduler_side import SchedulerSide
from kvcellar.testing.oracle.layouts import build
from kvcellar.testing.oracle.layouts.ranks import RankShape
from kvcellar.testing.oracle.workers import start_workers

SHAPE = RankShape(tensor=2, stages=(1, 3))


@pytest.fixture(scope="module")
def engine():
    """Four ranks whose stages differ, and what they tell: (layout, handshakes)."""
    extra = {"host_memory": "8MiB"}
    layout = build("gpt-oss-20b", extra_config=extra, ranks=SHAPE)
    workers, _ = start_workers(layout, seed=0)
    told = {divmod(r, 2): w.get_handshake_metadata() for r, w in enumerate(workers)}
    yield layout, told
    for worker in workers:
        worker.shutdown()


def scheduler_of(layout):
    return SchedulerSide(layout.vllm_config, layout.scheduler_config)


def changed(told, key, **changes):
    """The same handshakes, one of them with other content."""
    return told | {key: dataclasses.replace(told[key], **changes)}


def test_the_planner_counts_the_bytes_of_all_ranks(engine):
    """Sums over ranks, the layers of each stage once, and one number of slabs."""
    layout, told = engine
    side = scheduler_of(layout)
    side.set_handshakes(told)
    planner = side.offloader
    assert [2, 2] == [group.num_layers for group in planner.layout.groups]
    ranks = [one.geometry for one in told.values()]
    assert {planner.slabs.geometry.num_slabs} == {rank.num_slabs for rank in ranks}
    arena = sum(rank.arena_bytes for rank in ranks)
    assert arena == planner.slabs.geometry.arena_bytes <= 8 * 2**20
    side.close()


def test_the_log_says_what_each_rank_maps(engine, caplog):
    """The multiplication, what is lost to the difference, and what fits."""
    layout, told = engine
    caplog.set_level("INFO", logger="vllm.kvcellar")
    logger = logging.getLogger("vllm.kvcellar")
    logger.addHandler(caplog.handler)
    side = scheduler_of(layout)
    side.set_handshakes(told)
    logger.removeHandler(caplog.handler)
    assert "2 rank(s) x" in caplog.text
    assert "of host memory, by the bytes each rank holds" in caplog.text
    assert "of it cannot be used, since the ranks hold" in caplog.text
    assert "in all 4 ranks:" in caplog.text
    side.close()


def test_waking_up_with_the_same_bytes_changes_nothing(engine):
    """And with others is refused."""
    layout, told = engine
    side = scheduler_of(layout)
    side.set_handshakes(told)
    planner = side.offloader
    side.set_handshakes(dict(told))
    assert planner is side.offloader
    with pytest.raises(IncompatibleError, match="have changed"):
        side.set_handshakes({(0, 0): told[0, 0]})
    side.close()


def test_a_missing_rank_is_refused(engine):
    """Its copies would never be heard of."""
    layout, told = engine
    few = {key: one for key, one in told.items() if key != (1, 1)}
    with pytest.raises(IncompatibleError, match="3 of 4 ranks have told the scheduler"):
        scheduler_of(layout).set_handshakes(few)


def test_stages_that_nobody_has_told_of_are_refused(engine):
    """Where another connector's handshake stands before ours."""
    layout, _ = engine
    with pytest.raises(IncompatibleError, match="name kvcellar's connector first"):
        scheduler_of(layout).set_handshakes({(0, 0): object()})


def test_ranks_in_another_order_are_refused(engine):
    """Whoever calls itself rank 1 must be the second one."""
    layout, told = engine
    swapped = told | {(0, 0): told[0, 1], (0, 1): told[0, 0]}
    with pytest.raises(IncompatibleError, match="calls itself rank 1 of 4"):
        scheduler_of(layout).set_handshakes(swapped)


def test_a_rank_that_has_heard_other_bytes_is_refused(engine):
    """Which rank, and which bytes."""
    layout, told = engine
    facts = told[1, 0].facts
    groups = facts[0].layout.groups
    more = dataclasses.replace(groups[0], payload_bytes=groups[0].payload_bytes + 64)
    other = dataclasses.replace(facts[0].layout, groups=(more, *groups[1:]))
    heard = (RankFacts(other, {}), *facts[1:])
    with pytest.raises(IncompatibleError, match="rank 2 has heard other bytes"):
        scheduler_of(layout).set_handshakes(changed(told, (1, 0), facts=heard))


def test_a_rank_with_another_cut_is_refused(engine):
    """Its cells would lie elsewhere, or beyond its memory."""
    layout, told = engine
    geometry = told[1, 1].geometry
    fewer = dataclasses.replace(geometry, num_slabs=geometry.num_slabs - 1)
    with pytest.raises(
        IncompatibleError,
        match=f"rank 3 cut its host memory into {geometry.num_slabs - 1} slabs",
    ):
        scheduler_of(layout).set_handshakes(changed(told, (1, 1), geometry=fewer))


def test_another_of_our_connectors_may_have_told(engine):
    """With a memory of its own: bytes are believed, its cut is not compared."""
    layout, told = engine
    half = {
        key: dataclasses.replace(
            one,
            settings=dataclasses.replace(one.settings, host_memory_bytes=4 * 2**20),
            geometry=dataclasses.replace(one.geometry, num_slabs=3),
        )
        for key, one in told.items()
    }
    side = scheduler_of(layout)
    side.set_handshakes(half)
    assert 3 < side.offloader.slabs.geometry.num_slabs
    side.close()


def test_a_scheduler_with_other_units_is_refused(engine):
    """Its hits would end where the ranks' blocks do not."""
    layout, told = engine
    facts = tuple(
        RankFacts(
            dataclasses.replace(one.layout, alignment_tokens=32, chunk_tokens=32), {}
        )
        for one in told[0, 0].facts
    )
    others = {k: dataclasses.replace(one, facts=facts) for k, one in told.items()}
    with pytest.raises(IncompatibleError, match="disagree about alignment_tokens"):
        scheduler_of(layout).set_handshakes(others)


def test_dead_states_are_cut_where_all_ranks_with_layers_take_them_for_that():
    """A stage without such layers has no say; one that sees a plain window does."""
    extra = {"host_memory": "8MiB"}
    layout = build(
        "deepseek-v4-flash", extra_config=extra, ranks=RankShape(stages=(2, 7))
    )
    workers, _ = start_workers(layout, seed=0)
    told = workers[0].get_handshake_metadata()
    for worker in workers:
        worker.shutdown()
    first, second = told.facts
    assert not first.compressor_ratios
    assert second.compressor_ratios
    cut = plan_server(told.facts, told.settings, 1).layout
    plain = plan_server((first, RankFacts(second.layout, {})), told.settings, 1).layout
    spans = [[g.span_tokens for g in one.groups] for one in (cut, plain)]
    assert spans[0] != spans[1]
