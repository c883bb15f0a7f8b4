"""Ranks that hold the same bytes: found, joined, cut together, at work on one arena."""

import logging
import os
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("vllm")

from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

from kvcellar.config import Settings
from kvcellar.errors import ConfigError, IncompatibleError, TierError
from kvcellar.integrations.vllm.scheduler_side import SchedulerSide
from kvcellar.integrations.vllm.sharing import num_identical_ranks, share_arena
from kvcellar.testing.exchange import local_exchanges, run_together
from kvcellar.testing.oracle.layouts import build
from kvcellar.testing.oracle.layouts.ranks import RankShape
from kvcellar.testing.oracle.workers import start_workers
from kvcellar.transfer import joining
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy
from kvcellar.transfer.joining import Joined

LONG_SECONDS = 30.0
MIB = 2**20


# -- who holds the same ----------------------------------------------------------------


def heads(num_kv_heads=1, kind=FullAttentionSpec):
    sizes = {"block_size": 16, "num_kv_heads": num_kv_heads, "head_size": 8}
    window = {"sliding_window": 32} if kind is SlidingWindowSpec else {}
    return kind(**sizes, dtype=np.float16, **window)


def identical(share, declared=1, specs=(), tp=4, total=2, **others):
    """What is found for a model of these layers on so many ranks."""
    architecture = SimpleNamespace(
        total_num_kv_heads=total, per_layer_overrides=others.get("overrides")
    )
    vllm_config = SimpleNamespace(
        parallel_config=SimpleNamespace(
            tensor_parallel_size=tp, local_world_size=others.get("local", tp)
        ),
        model_config=SimpleNamespace(model_arch_config=architecture),
        speculative_config=others.get("draft"),
    )
    groups = [SimpleNamespace(kv_cache_spec=spec) for spec in specs or (heads(),)]
    cache = SimpleNamespace(kv_tp_replicas=declared, kv_cache_groups=groups)
    return num_identical_ranks(vllm_config, cache, Settings(share_replicated=share))


def test_what_the_engine_declares_is_shared_unless_switched_off():
    """Latent caches: by default, and on request."""
    assert (4, 4, 1) == tuple(
        identical(share, declared=4) for share in ("auto", "on", "off")
    )


def test_only_ranks_of_one_machine_share():
    """Eight ranks on four machines share by twos, on eight machines not at all."""
    assert 2 == identical("auto", declared=8, tp=8, local=2)
    assert 1 == identical("auto", declared=8, tp=8, local=1)
    with pytest.raises(ConfigError, match="another of its machine"):
        identical("on", declared=8, tp=8, local=1)


def test_repeated_heads_are_shared_on_request_only():
    """Two heads on four ranks: two ranks hold each, which the engine does not say."""
    assert (1, 1, 2) == tuple(identical(share) for share in ("auto", "off", "on"))
    assert 4 == identical("on", specs=(heads(), heads(1, SlidingWindowSpec)), total=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"total": 4},
        {"specs": (heads(), heads(2))},
        {"specs": (heads(), object())},
        {"tp": 1, "total": 1},
        {"tp": 6, "total": 4},
        {"overrides": [{}, {"total_num_kv_heads": 4}]},
        {"draft": object()},
    ],
    ids=["as many heads", "two", "a state", "one rank", "odd", "layers", "drafter"],
)
def test_nothing_to_share_is_refused_on_request(changes):
    """Where any layer may hold other bytes on each rank."""
    with pytest.raises(ConfigError, match='share_replicated="on" has nothing to share'):
        identical("on", **changes)


# -- joining ---------------------------------------------------------------------------


def share_all(settings):
    """What each of two ranks gets."""
    return run_together(
        [lambda e=e: share_arena(e, 2, settings) for e in local_exchanges(2)]
    )


def test_ranks_join_over_the_exchange():
    """Both have one file, and can meet."""
    joined = share_all(Settings())
    assert all(isinstance(one, Joined) for one in joined)
    assert 1 == len({os.fstat(one.file).st_ino for one in joined})
    for one in joined:
        os.close(one.file)
        one.share.close()


def refuse(*_):
    raise TierError("host", "share memory", "no such call")


def test_a_system_that_cannot_share_is_a_warning(monkeypatch, caplog):
    """Once, with the reason; every rank then has an arena of its own."""
    logging.getLogger("vllm.kvcellar").addHandler(caplog.handler)
    monkeypatch.setattr(joining, "new_memory_file", refuse)
    assert [None, None] == share_all(Settings())
    logging.getLogger("vllm.kvcellar").removeHandler(caplog.handler)
    assert "no such call" in caplog.text
    assert 1 == len({id(record) for record in caplog.records})


def test_a_system_that_cannot_share_is_refused_on_request(monkeypatch):
    """On every rank, with the reason."""
    monkeypatch.setattr(joining, "new_memory_file", refuse)
    with pytest.raises(ConfigError, match=r"rank 0: host tier: .* no such call"):
        share_all(Settings(share_replicated="on"))


# -- at work ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layout():
    """Two stages of two ranks that hold the same bytes."""
    shape = RankShape(tensor=2, stages=(1, 3))
    made = build("gpt-oss-20b", extra_config={"host_memory": "8MiB"}, ranks=shape)
    for config in (*made.worker_configs, made.scheduler_config):
        config.kv_tp_replicas = 2
    return made


@pytest.fixture
def workers(layout):
    """Their worker halves."""
    started, _ = start_workers(layout, seed=0)
    yield started
    for worker in started:
        worker.shutdown()


def handshakes(workers):
    return {divmod(r, 2): w.get_handshake_metadata() for r, w in enumerate(workers)}


def test_the_planner_counts_shared_bytes_once(layout, workers, caplog):
    """All of host memory is theirs, twice as many slabs as with copies, and said so."""
    told = handshakes(workers)
    arenas = [one.geometry for one in told.values()][::2]
    logging.getLogger("vllm.kvcellar").addHandler(caplog.handler)
    caplog.set_level("INFO", logger="vllm.kvcellar")
    side = SchedulerSide(layout.vllm_config, layout.scheduler_config)
    side.set_handshakes(told)
    logging.getLogger("vllm.kvcellar").removeHandler(caplog.handler)
    slabs = side.offloader.slabs.geometry
    assert sum(arena.arena_bytes for arena in arenas) == slabs.arena_bytes <= 8 * MIB
    assert slabs.arena_bytes > 7 * MIB
    assert "1 arena(s) of 2 ranks x" in caplog.text
    side.close()


def test_ranks_that_have_not_told_are_refused(layout):
    """Behind another connector nobody knows whether they share."""
    side = SchedulerSide(layout.vllm_config, layout.scheduler_config)
    parallel = layout.vllm_config.parallel_config
    parallel.pipeline_parallel_size = 1
    try:
        with pytest.raises(IncompatibleError, match="not every rank has told whether"):
            _ = side.offloader
    finally:
        parallel.pipeline_parallel_size = 2


def test_ranks_store_a_part_each_and_load_all(workers):
    """What two ranks stored together, each finds whole; the other stage is its own."""
    sides = [worker.worker_side for worker in workers]
    same = [(0, 1), (2, 3)]
    for first, second in same:
        caches = [next(iter(sides[r]._kv_caches.values())) for r in (first, second)]
        caches[1].copy_(caches[0])  # they hold the same
        sources, targets = np.arange(1, 7), np.arange(7, 13)
        cells = np.arange(6)
        position = len(sides[first]._handshake.facts[0].layout.groups) - 1
        jobs = [
            CopyJob(1, Direction.STORE, (GroupCopy(position, sources, cells),)),
            CopyJob(2, Direction.MOVE, (GroupCopy(position, cells, cells + 6),)),
            CopyJob(3, Direction.LOAD, (GroupCopy(position, targets, cells + 6),)),
        ]
        for job in jobs:
            for rank in (first, second):
                sides[rank].transfers.submit(job)
            if job.direction is Direction.STORE:  # as the planner waits for all ranks
                for rank in (first, second):
                    assert sides[rank].transfers.drain(LONG_SECONDS)
        stored = 0
        for rank in (first, second):
            assert sides[rank].transfers.drain(LONG_SECONDS)
            results = {r.job_id: r for r in sides[rank].transfers.poll()}
            assert {None} == {result.error for result in results.values()}
            stored += results[1].num_bytes
            assert results[3].num_bytes == 2 * results[1].num_bytes
        assert results[3].num_bytes == stored
        assert bool((caches[0] == caches[1]).all())
    files = {_memory_file(side) for side in sides}
    assert 2 == len(files)


def test_a_rank_that_is_gone_is_told_once(workers, caplog):
    """The other one's copies fail from the next move on; the log says so, not often."""
    logging.getLogger("vllm.kvcellar").addHandler(caplog.handler)
    left, gone = (worker.worker_side for worker in workers[:2])
    assert gone.transfers.close(LONG_SECONDS)
    none = np.arange(0)
    for number in range(1, 12):
        direction = Direction.MOVE if number == 1 else Direction.STORE
        left.transfers.submit(CopyJob(number, direction, (GroupCopy(0, none, none),)))
    assert left.transfers.drain(LONG_SECONDS)
    left.take_results()
    logging.getLogger("vllm.kvcellar").removeHandler(caplog.handler)
    assert set(range(1, 12)) == left.take_report().failed
    told = {id(r) for r in caplog.records if "a copy failed" in r.getMessage()}
    assert 2 == len(told)  # the move's own reason, and that of all that follow


def _memory_file(side):
    """Inode of the file behind a rank's arena."""
    address = side._memory.address
    with open("/proc/self/maps") as maps:
        for line in maps:
            bounds, _, _, _, inode = line.split()[:5]
            first, end = (int(bound, 16) for bound in bounds.split("-"))
            if first <= address < end:
                return inode
    raise AssertionError("the arena is not mapped")
