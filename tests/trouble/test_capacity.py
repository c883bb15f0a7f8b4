"""Rows about size: what a budget holds, what is refused, what is not rounded up."""

import dataclasses
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from layouts import FULL, STATE, WINDOW, group, layout_of

from kvcellar.config import (
    Settings,
    describe_host_memory,
    rank_bytes,
    settings_from_extra_config,
)
from kvcellar.errors import ConfigError
from kvcellar.index.capacity import capacity, describe
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine
from kvcellar.tiers.machine import MachineMemory, check_fits
from kvcellar.tiers.memory import HostMemory

MIB, GIB, TIB = 2**20, 2**30, 2**40


def fake(layout, host_bytes, **settings):
    return FakeEngine(layout, plan_geometry(layout, host_bytes), Settings(**settings))


def fill(run, name, tokens):
    """Compute a prompt, store it, let it end."""
    request = run.start(name, list(tokens))
    run.run_jobs()
    while request.num_computed < len(tokens):
        run.compute(request, 4096)
        run.run_jobs()
    run.finish(request)


def tokens_of(seed, num_tokens):
    return [seed * 1_000_000 + i for i in range(num_tokens)]


def test_lmcache_5127_the_multiplication_is_printed_and_refused():
    """512 GiB per rank, eight ranks, 2 TiB free: 4096 GiB, refused before mapping."""
    settings = settings_from_extra_config({"host_memory_per_rank": "512GiB"})
    line = describe_host_memory(settings, 8)
    assert line.startswith("8 rank(s) x ")
    assert "(512.00 GiB) = " in line
    assert "(4096.00 GiB)" in line
    layout = layout_of(group(0, FULL, 16, None, GIB), hash_tokens=16, alignment=16)
    geometry = plan_geometry(layout, rank_bytes(settings, 8))
    machine = MachineMemory(total_bytes=2 * TIB, available_bytes=2 * TIB)
    refused = r"4\.00 TiB\) in all for the ranks on this machine.*\(2\.00 TiB\)"
    with pytest.raises(ConfigError, match=refused):
        HostMemory(geometry, machine_bytes=8 * geometry.arena_bytes, machine=machine)


def test_sglang_40135_all_ranks_share_one_budget():
    """Eight ranks, a limit of 128 GiB less 10: 20 GiB each is refused, 11.8 fits."""
    machine = MachineMemory(
        total_bytes=512 * GIB,
        available_bytes=400 * GIB,
        limit_bytes=128 * GIB,
        below_limit_bytes=118 * GIB,
    )
    with pytest.raises(ConfigError, match=r"160\.00 GiB.*limit.*128\.00 GiB"):
        check_fits(20 * GIB, machine, 8 * 20 * GIB)
    share = rank_bytes(Settings(host_memory_bytes=118 * GIB * 8 // 10), 8)
    assert 11.8 == pytest.approx(share / GIB, rel=1e-6)
    check_fits(share, machine, 8 * share)


def test_sglang_29034_one_size_for_all_pools():
    """20 GiB per rank is 20 GiB for KV and states together, 160 GiB for eight ranks."""
    settings = settings_from_extra_config({"host_memory_per_rank": "20GiB"})
    layout = layout_of(
        group(0, FULL, 64, None, 13_420_000),
        group(1, STATE, 64, None, 1_340_000),
        hash_tokens=64,
        alignment=64,
    )
    geometry = plan_geometry(layout, rank_bytes(settings, 8))
    assert 19.8 * GIB < geometry.arena_bytes <= 20 * GIB
    assert "(160.00 GiB)" in describe_host_memory(settings, 8)


def test_vllm_53042_nothing_is_rounded_to_a_power_of_two():
    """24 tensors of 2053 pages of 1,089,536 bytes, four ranks: 200 GiB, and not 384."""
    page = 24 * 1_089_536
    layout = layout_of(group(0, FULL, 16, None, page), hash_tokens=16, alignment=16)
    geometry = plan_geometry(layout, 2053 * page)
    assert 199 < 4 * geometry.arena_bytes / GIB <= 200
    assert 2040 <= capacity(layout, geometry).num_chunks <= 2053
    small = plan_geometry(layout, 5 * page)
    with HostMemory(small) as memory:
        assert 5 * page == memory.num_bytes == len(memory.array)


def test_vllm_39617_layers_are_counted_once():
    """78 layers in one group: cells are the budget by the page, never by 78 again."""
    page, budget = 78 * 9216, 4 * GIB
    layout = layout_of(
        dataclasses.replace(group(0, FULL, 16, None, page), num_layers=78),
        hash_tokens=16,
        alignment=16,
    )
    geometry = plan_geometry(layout, rank_bytes(Settings(host_memory_bytes=budget), 2))
    num_chunks = capacity(layout, geometry).num_chunks
    assert num_chunks * page * 2 <= budget
    assert num_chunks == pytest.approx(budget / (page * 2), rel=0.01)


def test_vllm_53474_two_nodes_have_the_room_of_both():
    """1 MiB per worker and chunk, 64 MiB on each of two nodes, eight ranks: 16."""
    layout = layout_of(group(0, FULL, 16, None, MIB), hash_tokens=16, alignment=16)
    share = rank_bytes(Settings(host_memory_bytes=2 * 64 * MIB), 8)
    assert 16 == capacity(layout, plan_geometry(layout, share)).num_chunks


def test_vllm_53902_chunks_are_counted_as_they_are_cut():
    """4 GiB in chunks of 200 blocks, 117,964,800 bytes: 36 slots of 3200 tokens."""
    layout = layout_of(
        group(0, FULL, 16, None, 117_964_800 // 200),
        hash_tokens=16,
        alignment=16,
        chunk=3200,
    )
    figures = capacity(layout, plan_geometry(layout, 4 * GIB))
    assert (36, 3200) == (figures.num_chunks, figures.chunk_tokens)
    assert "36 chunks of 3200 tokens" in describe(figures)


def test_vllm_56871_groups_do_not_pay_for_each_other():
    """Eight groups of one page, 16 pages: two boundaries of all eight are resident."""
    layout = layout_of(
        *(group(i, FULL, 16) for i in range(8)), hash_tokens=16, alignment=16
    )
    run = fake(layout, 16 * 64)
    fill(run, "first", tokens_of(1, 33))
    slabs = run.offloader.slabs
    assert (16, 16 * 64) == (slabs.num_used(0), slabs.used_bytes)
    assert 0 == run.offloader.index.counters.evicted_chunks
    assert 32 == run.look_up(run.start("again", tokens_of(1, 33)))
    assert 16 == run.look_up(run.start("shorter", tokens_of(1, 17)))


def test_vllm_56871_used_and_reserved_bytes_are_both_told():
    """Groups of 1 page x 7 and 4 pages: used is the payload, claimed is no less."""
    layout = layout_of(
        *(group(i, FULL, 16) for i in range(7)),
        group(7, FULL, 16, None, 4 * 64),
        hash_tokens=16,
        alignment=16,
    )
    run = fake(layout, 64 * 64)
    fill(run, "first", tokens_of(1, 33))
    slabs = run.offloader.slabs
    assert 2 * 11 * 64 == slabs.used_bytes
    assert slabs.used_bytes <= slabs.claimed_bytes <= slabs.geometry.arena_bytes


def test_sglang_39436_states_and_tokens_draw_from_one_pool():
    """200 prompts of 8448 tokens in the room of 565 states and 2,680,896 tokens.

    The eight oldest all come back with 8192 tokens: no split makes states run out.
    """
    state_bytes, token_bytes = 4096, 4
    layout = layout_of(
        group(0, FULL, 256, None, 256 * token_bytes),
        group(1, STATE, 256, None, state_bytes),
        hash_tokens=256,
        alignment=256,
    )
    run = fake(layout, 565 * state_bytes + 2_680_896 * token_bytes)
    for seed in range(200):
        fill(run, f"r{seed}", tokens_of(seed, 8448))
    hits = [run.look_up(run.start(f"again{s}", tokens_of(s, 8448))) for s in range(8)]
    assert [8192] * 8 == hits
    assert 0 == run.offloader.index.counters.evicted_chunks


def test_vllm_51439_only_what_a_resume_reads_is_loaded():
    """full(16) and swa(16, 32): 100 chunks bring 100 full and two window blocks."""
    layout = layout_of(
        group(0, FULL, 16), group(1, WINDOW, 16, 32), hash_tokens=16, alignment=16
    )
    run = fake(layout, 400 * 64)
    fill(run, "first", tokens_of(1, 1601))
    run.start("again", tokens_of(1, 1601))
    (load,) = run.queue
    counts = {copies.position: len(copies.host_blocks) for copies in load.copies}
    assert {0: 100, 1: 2} == counts
    run.run_jobs()
    assert 1600 == run.loaded_tokens


def test_vllm_50358_too_little_memory_is_found_out_before_anything_is_touched():
    """Needs 4096 MiB, has 1405: both numbers and the setting's name, nothing mapped."""
    layout = layout_of(group(0, FULL, 16, None, MIB), hash_tokens=16, alignment=16)
    geometry = plan_geometry(layout, 4096 * MIB)
    machine = MachineMemory(total_bytes=64 * GIB, available_bytes=1405 * MIB)
    with pytest.raises(ConfigError) as refusal:
        HostMemory(geometry, machine=machine)
    text = str(refusal.value)
    assert f"({geometry.arena_bytes / GIB:.2f} GiB)" in text
    assert f"{1405 * MIB} bytes" in text
    assert "host_memory" in text


def test_kserve_6086_replicas_on_one_machine_count_together(engine, monkeypatch):
    """Four local replicas of 64 MiB each: the machine must have 256 MiB."""
    from kvcellar.integrations.vllm import worker_side
    from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

    asked = []

    class Counted(HostMemory):
        def __init__(self, geometry, *, machine_bytes, machine=None):
            asked.append(machine_bytes)
            super().__init__(geometry, machine_bytes=machine_bytes, machine=machine)

    monkeypatch.setattr(worker_side, "HostMemory", Counted)
    engine(stack("FF", F=full(SMALL, 16)), prompt_tokens=200, num_replicas=4)
    assert 4 * 63 * MIB < asked[0] <= 4 * 64 * MIB


CHILD = """
    import sys
    from kvcellar.layout.groups import AttentionKind, GroupLayout, make_layout
    from kvcellar.layout.host import plan_geometry
    from kvcellar.tiers.memory import HostMemory
    group = GroupLayout(0, AttentionKind.FULL, 16, 2**20, 2**20, 1)
    units = dict(hash_block_tokens=16, alignment_tokens=16, scheduler_block_tokens=16)
    memory = HostMemory(plan_geometry(make_layout([group], **units), 64 * 2**20))
    memory.array[:] = 1
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_vllm_57303_a_killed_server_leaves_nothing_in_the_way():
    """Start, kill -9, start again: both start, on memory that no file stands behind."""
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
            text=True,
        ) as child:
            assert child.stdout is not None
            assert "ready\n" == child.stdout.readline()
            mapped = Path(f"/proc/{child.pid}/maps").read_text()
            child.kill()
        assert "libc" in mapped
        assert "/dev/shm" not in mapped
        assert "/memfd:" not in mapped
        assert -signal.SIGKILL == child.returncode
