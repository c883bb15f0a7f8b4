"""Rows about copies: the right bytes, from the right blocks, after the right step."""

import random

import pytest
from layouts import FULL, WINDOW, group, layout_of

from kvcellar.config import Settings
from kvcellar.device.regions import PageTensor, regions_from_tensors
from kvcellar.errors import IncompatibleError
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine, WrongBytesError
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import CopyJob, Direction

pytest.importorskip("vllm")

from own_layouts import hybrid_layers
from scripted import prompt

from kvcellar.testing.oracle.layouts import LAYOUT_NAMES
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack


def pages(payload_bytes, stride_bytes, storage_bytes, offset_bytes=0):
    return PageTensor(
        storage_address=4096,
        storage_bytes=storage_bytes,
        offset_bytes=offset_bytes,
        layer_stride_bytes=0,
        block_stride_bytes=stride_bytes,
        num_layers=1,
        payload_bytes=payload_bytes,
    )


def test_sglang_38031_side_data_comes_back_with_the_main_data(engine):
    """Eight blocks of caches and indexer keys in one group: all bytes return."""
    run = engine("deepseek-v4-flash", max_model_len=2600)
    (both,) = [g for g in run.planner.layout.groups if g.kind is FULL]
    specs = run.layout.worker_config.kv_cache_groups[both.group_id].kv_cache_spec
    sizes = {spec.unpadded_page_size_bytes for spec in specs.kv_cache_specs.values()}
    assert len(sizes) > 1
    tokens = prompt(2049)
    run.ask(tokens)
    run.drop_device()
    run.device.make_noise(range(1, run.device.num_blocks), seed=1)
    before = run.runner.num_units_checked
    assert 2048 == run.ask(tokens).loaded_tokens
    assert run.runner.num_units_checked > before


@pytest.mark.parametrize("name", [n for n in LAYOUT_NAMES if not n.endswith("-mtp")])
def test_vllm_49127_restored_blocks_are_those_of_a_device_hit(engine, name):
    """Every group, after device hit and restore alike, at three ends of a prompt."""
    run = engine(name)
    chunk = run.planner.layout.chunk_tokens
    whole = prompt(run.layout.prompt_tokens)
    restored = 0
    for cut in (0, chunk, chunk + 1):
        tokens = whole[: len(whole) - cut] if len(whole) - cut > chunk else whole
        run.ask(tokens)
        run.ask(tokens)  # a device hit
        run.drop_device()
        run.device.make_noise(range(1, run.device.num_blocks), seed=cut)
        restored += run.ask(tokens).loaded_tokens
    assert restored > 0


def test_vllm_53607_pages_stay_inside_their_buffer():
    """Pages of 576 and 584 bytes with different strides: all inside, or refused."""
    num_blocks, storage = 10, 20_000
    tensors = [pages(576, 640, storage), pages(584, 1024, storage, offset_bytes=6400)]
    regions = regions_from_tensors(tensors, num_blocks)
    ends = [
        region.base_address + b * region.block_stride_bytes + region.payload_bytes
        for region in regions
        for b in range(num_blocks)
    ]
    assert {576, 584} == {region.payload_bytes for region in regions}
    assert 4096 <= min(r.base_address for r in regions)
    assert max(ends) <= 4096 + storage
    too_short = 6400 + 9 * 1024 + 583
    with pytest.raises(IncompatibleError, match=f"allocation of {too_short} bytes"):
        regions_from_tensors([pages(584, 1024, too_short, 6400)], num_blocks)


def test_vllm_52807_a_load_starts_behind_the_local_prefix_in_every_group(engine):
    """full(16) and ssm(16): 64 tokens local and 128 external load nothing below 64."""
    run = engine(hybrid_layers(16), prompt_tokens=300, dense=True)
    tokens = prompt(193)
    run.ask(tokens)
    run.forget_on_device()
    run.ask(tokens[:65])
    run.jobs.clear()
    answer = run.ask(tokens)
    assert (64, 128) == (answer.local_tokens, answer.loaded_tokens)
    by_kind = {
        str(run.planner.layout.groups[position].kind): (len(blocks), len(hosts))
        for position, blocks, hosts in run.copies("load")
    }
    assert {"full": (8, 8), "state": (1, 1)} == by_kind


def test_vllm_28950_a_load_may_start_inside_a_chunk(engine):
    """Blocks of 16 in chunks of 256, 48 tokens on the device: blocks 3 to 15."""
    run = engine(
        stack("FF", F=full(SMALL, 16)), prompt_tokens=300, extra={"chunk_tokens": 256}
    )
    tokens = prompt(300)
    run.ask(tokens)
    run.forget_on_device(keep_tokens=48)
    answer = run.ask(tokens)
    assert (48, 208) == (answer.local_tokens, answer.loaded_tokens)
    ((_, _, host_blocks),) = run.copies("load")
    assert list(range(3, 16)) == [block % 16 for block in sorted(host_blocks)]


def test_vllm_28950_refused_stores_leave_later_look_ups_consistent():
    """Every second store fails: what is found is loaded right, and grows again."""
    layout = layout_of(
        group(0, FULL, 16), group(1, WINDOW, 16, 32), hash_tokens=16, alignment=16
    )
    run = FakeEngine(layout, plan_geometry(layout, 2000 * 64), Settings())
    base, hits = prompt(320), []
    for turn in range(12):
        run.failing = {"store"} if turn % 2 else set()
        request = run.start(f"r{turn}", base + prompt(17, turn))
        hits.append(request.num_computed)
        run.run_jobs()  # raises on a wrong byte
        run.compute(request, 400)
        run.run_jobs()
        run.finish(request)
    assert 320 == hits[-1]


class LateDevice:
    """A device whose writes land when a fence is waited for, or polls have passed."""

    def __init__(self, delay, *, has_order=True):
        self.blocks = {}
        self.host = {}
        self._writes = []
        self._delay = delay
        self._has_order = has_order

    def compute(self, block, content):
        """Queue a write, as a step does; it lands ``delay`` copies later."""
        self._writes.append((block, content))

    def fence(self):
        return len(self._writes)

    def copy(self, job, fence):
        landed = fence if self._has_order else max(fence - self._delay, 0)
        self.blocks.update(self._writes[:landed])
        for copy in job.copies:
            self.host |= {b: self.blocks.get(b) for b in copy}
        return 1

    def close(self):
        pass


@pytest.mark.parametrize("delay", range(4))
@pytest.mark.parametrize("has_order", [True, False])
def test_vllm_45704_a_store_reads_what_its_step_wrote(delay, has_order):
    """However late writes land, the copy waits for its fence; without one it shows."""
    device = LateDevice(delay, has_order=has_order)
    engine = TransferEngine(device)
    for block in range(20):
        device.compute(block, f"written {block}")
        engine.submit(CopyJob(block, Direction.STORE, ([block],)))
    assert engine.drain(30)
    assert engine.close(30)
    right = {block: f"written {block}" for block in range(20)}
    assert (right == device.host) is (has_order or not delay)


def test_vllm_45704_stores_are_submitted_behind_the_forward(engine):
    """In the step that computes a block the store's fence comes after the write."""
    run = engine(stack("FF", F=full(SMALL, 16)), prompt_tokens=200)
    order, forward, submit = [], run.runner._forward, run.transfers.submit
    run.runner._forward = lambda *a: (order.append("forward"), forward(*a))[1]
    run.transfers.submit = lambda job: (order.append(job.direction), submit(job))[1]
    run.ask(prompt(100))
    assert order.index("forward") < order.index(Direction.STORE)


def test_tensorrt_llm_8813_every_restored_block_is_the_one_asked_for():
    """10,000 random steps over host memory of 400 chunks; wrong bytes raise."""
    layout = layout_of(
        group(0, FULL, 4), group(1, WINDOW, 4, 8, 48), hash_tokens=4, alignment=4
    )
    run = FakeEngine(layout, plan_geometry(layout, 400 * 112), Settings())
    rng, history = random.Random(0), [[]]
    for step in range(10_000):
        roll = rng.random()
        ready = [r for r in run.requests.values() if not r.is_loading]
        if roll < 0.3 or not ready:
            base = rng.choice(history)
            tokens = base[: rng.randint(0, len(base))]
            tokens = tokens + [rng.randint(0, 2) for _ in range(rng.randint(1, 30))]
            run.start(f"r{step}", tokens[:120])
        elif roll < 0.7:
            run.compute(rng.choice(ready), rng.randint(1, 30))
        else:
            request = rng.choice(ready)
            history = [*history[-40:], list(request.tokens)]
            run.finish(request)
        if rng.random() < 0.6:
            run.run_jobs(rng.choice([1, 2, None]))
    run.run_jobs()
    counters = run.offloader.index.counters
    assert run.loaded_tokens > 10_000
    assert counters.evicted_chunks > 400


def test_tensorrt_llm_8813_a_wrong_block_would_raise():
    """The trial above notices a host block that holds another's bytes."""
    layout = layout_of(group(0, FULL, 4), hash_tokens=4, alignment=4)
    run = FakeEngine(layout, plan_geometry(layout, 40 * 64), Settings())
    first = run.start("first", prompt(17))
    run.compute(first, 17)
    run.run_jobs()
    places = list(run.host)
    run.host[places[0]], run.host[places[1]] = run.host[places[1]], run.host[places[0]]
    run.start("again", prompt(17))
    with pytest.raises(WrongBytesError):
        run.run_jobs()
