"""KV events about host memory: as the device's own, on the wire, only if asked for."""

import gc
import random
import weakref

import pytest

pytest.importorskip("vllm")

from kv_subscriber import KvSubscriber
from own_layouts import keep_every_state, plan
from scripted import Scripted, prompt
from vllm.config import KVEventsConfig
from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    MEDIUM_GPU,
    BlockRemoved,
    BlockStored,
    EventPublisher,
)
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from kvcellar.integrations.vllm.compat import event_hash_converter
from kvcellar.testing.oracle.layouts import build
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack, window

SETTINGS = {"host_memory": "64MiB"}
FULL_16 = stack("FF", F=full(SMALL, 16))


class Recorder(EventPublisher):
    """Keeps what is published, beside the one who believes it."""

    def __init__(self, follower):
        super().__init__()
        self.events = []
        self._follower = follower

    def publish(self, events):
        self.events += events.events
        self._follower.publish(events)

    def shutdown(self):
        pass

    def of(self, medium, kind=BlockStored):
        return [e for e in self.events if isinstance(e, kind) and e.medium == medium]


@pytest.fixture
def follow():
    """Make an engine whose KV events are recorded; ``config`` is the engine's."""
    made = []

    def make(layout, **config):
        config = {"enable_kv_cache_events": True, "publisher": "null"} | config
        layout.vllm_config.kv_events_config = KVEventsConfig(**config)
        run = Scripted(layout)
        made.append(run)
        if config["publisher"] == "null":
            run.events = Recorder(run.follower)
            run.scheduler.kv_event_publisher = run.events
        return run

    yield make
    for run in made:
        run.finish()
        run.scheduler.kv_event_publisher.shutdown()
        run.close()


def by_block(events):
    """(group, hash) to all that an event says of that block.

    Where the device skips blocks that a window has left, its events do not say which
    tokens belong to which block; these are left out.
    """
    blocks = {}
    for event in events:
        size = event.block_size
        if len(event.token_ids) != size * len(event.block_hashes):
            continue
        parent = event.parent_block_hash
        for number, key in enumerate(event.block_hashes):
            tokens = event.token_ids[number * size : (number + 1) * size]
            extra = event.extra_keys and event.extra_keys[number]
            blocks[event.group_idx, key] = (
                *(parent, tokens, size, extra),
                *(event.lora_id, event.lora_name, event.session_id),
            )
            parent = key
    return blocks


def picture(first):
    place = PlaceholderRange(offset=first, length=40)
    return MultiModalFeatureSpec(
        data=None, modality="image", identifier="m1", mm_position=place, mm_hash="m1"
    )


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "gemma-3-27b", "qwen3-next", "deepseek-v4-flash"]
)
def test_events_say_of_a_block_what_the_devices_own_say(follow, name, mode):
    """Tokens, parent, block size, adapter, salt, media and session, in every group."""
    settings = {"host_memory": "256MiB", "mode": mode}
    layout = keep_every_state(build(name, extra_config=settings))
    run = follow(layout)
    run.take_pictures()
    tokens = prompt(layout.prompt_tokens // 2)
    lora = LoRARequest(lora_name="a1", lora_int_id=1, lora_path="/one")
    run.ask(tokens, lora_request=lora, cache_salt="s", session_id="t")
    run.ask(tokens, mm_features=[picture(50)])
    while mode == "lazy" and not run.events.of(MEDIUM_CPU):
        run.ask(prompt(layout.prompt_tokens, seed=len(run.answers)))
    ours = by_block(run.events.of(MEDIUM_CPU))
    device = by_block(run.events.of(MEDIUM_GPU))
    both = ours.keys() & device.keys()
    assert {key: ours[key] for key in both} == {key: device[key] for key in both}
    cache = run.planner.layout
    growing = {cache.groups[position].group_id for position in cache.chunk_positions}
    assert growing <= {group for group, _ in both}


def test_events_name_medium_locality_and_kind_of_group(follow):
    """A full group and a window of 64 tokens: each as what it is."""
    layers = stack("FW", F=full(SMALL, 16), W=window(SMALL, 64, 16))
    run = follow(plan(layers, prompt_tokens=200, extra_config=SETTINGS))
    run.ask(prompt(129))
    said = {
        (e.kv_cache_spec_kind, e.kv_cache_spec_sliding_window, e.block_size)
        for e in run.events.of(MEDIUM_CPU)
    }
    assert {("full_attention", None, 16), ("sliding_window", 64, 16)} == said
    assert {"LOCAL"} == {e.locality for e in run.events.of(MEDIUM_CPU)}


def test_a_chunk_that_shares_its_first_block_announces_only_the_rest(follow):
    """Two prompts part inside a chunk: the common block is told of, and taken back,
    once, although two chunks hold it."""
    settings = SETTINGS | {"chunk_tokens": 32}
    run = follow(plan(FULL_16, prompt_tokens=200, extra_config=settings))
    first, second = prompt(33), prompt(16) + prompt(17, seed=1)
    run.ask(first)
    run.ask(second)
    one, two = run.events.of(MEDIUM_CPU)
    assert (2, 1) == (len(one.block_hashes), len(two.block_hashes))
    assert one.block_hashes[0] == two.parent_block_hash
    assert second[16:32] == two.token_ids
    while run.index.evict_one():
        pass
    run.ask(prompt(8))
    gone = [e.block_hashes for e in run.events.of(MEDIUM_CPU, BlockRemoved)]
    stored = [*one.block_hashes, *two.block_hashes]
    assert sorted(stored) == sorted(h for hashes in gone for h in hashes)


def test_a_reset_takes_back_host_memory_and_nothing_else(follow):
    """Each block by its name: ``AllBlocksCleared`` would clear the device's too."""
    run = follow(plan(FULL_16, prompt_tokens=200, extra_config=SETTINGS))
    run.ask(prompt(65))
    told = by_block(run.events.of(MEDIUM_CPU))
    run.events.events.clear()
    assert run.index.reset()
    run.ask(prompt(8))
    removed = run.events.of(MEDIUM_CPU, BlockRemoved)
    gone = {(e.group_idx, key) for e in removed for key in e.block_hashes}
    assert told.keys() == gone
    assert run.events.events == removed


def test_events_reach_a_subscriber(follow):
    """vLLM's own publisher and wire format: a consumer sees what host memory holds."""
    ends = {"endpoint": "inproc://kv", "replay_endpoint": "inproc://kv-again"}
    layout = plan(FULL_16, prompt_tokens=200, extra_config=SETTINGS)
    run = follow(layout, publisher="zmq", **ends)
    publisher, numbers = run.scheduler.kv_event_publisher, []
    publish = publisher.publish
    publisher.publish = lambda batch: (numbers.append(batch.ts), publish(batch))
    subscriber = KvSubscriber(*ends.values())
    try:
        answers = [run.ask(prompt(100, seed=seed)) for seed in range(3)]
        while run.index.evict_one() and len(run.index.nodes) > 10:
            pass
        answers.append(run.ask(prompt(20, seed=3)))
        batches = subscriber.read(len(numbers))
    finally:
        subscriber.close()
    assert numbers == [batch.ts for batch in batches]
    held = set()
    for event in (e for batch in batches for e in batch.events):
        if getattr(event, "medium", None) != MEDIUM_CPU:
            continue
        keys = set(event.block_hashes)
        if isinstance(event, BlockStored):
            held |= keys
        else:
            assert keys <= held
            held -= keys
    hashes = {h for answer in answers for h in answer.request.block_hashes}
    known = {int.from_bytes(h[-8:], "big"): h for h in hashes}
    assert run.index.nodes.keys() == {known[key] for key in held}


def test_nothing_is_made_where_nobody_follows():
    """Without the engine's switch nothing is noted and no event is sent."""
    run = Scripted(plan(FULL_16, prompt_tokens=200, extra_config=SETTINGS))
    run.ask(prompt(65))
    assert () == run.scheduler.connector.take_events()
    assert run.index.cells.announcements is None
    assert 4 == len(run.index.nodes)
    run.finish()
    run.close()


def test_a_request_that_has_ended_lets_its_media_go(follow):
    """Lazy mode describes blocks long after; what it keeps is names, not pictures."""
    settings = SETTINGS | {"mode": "lazy"}
    run = follow(
        plan(FULL_16, prompt_tokens=200, extra_config=settings, num_device_blocks=200)
    )
    run.take_pictures()
    feature = picture(16)
    answer = run.ask(prompt(65), mm_features=[feature])
    assert run.side.offloader._stores.waiting.chunks
    ghost = weakref.ref(answer.request)
    run.answers.clear()
    del answer
    run.ask(prompt(8), new_tokens=40)  # past the step in which it would have woken
    gc.collect()
    assert ghost() is None


@pytest.mark.parametrize("switch", ["1", "0"])
def test_hashes_are_named_as_the_device_names_them(monkeypatch, switch):
    """As integers, or as they are, by the engine's own switch."""
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", switch)
    convert = event_hash_converter()
    for seed in range(50):
        block_hash = random.Random(seed).randbytes(32)
        assert [maybe_convert_block_hash(block_hash)] * 2 == convert([block_hash] * 2)


def test_blocks_that_follow_each_other_are_told_of_in_one_event(follow):
    """Eight chunks in three steps, and their window at the end: not one by one."""
    layers = stack("FW", F=full(SMALL, 16), W=window(SMALL, 1024, 16))
    run = follow(plan(layers, prompt_tokens=200, extra_config=SETTINGS))
    run.ask(prompt(129))
    assert [4, 4, 8] == [len(e.block_hashes) for e in run.events.of(MEDIUM_CPU)]
    assert run.index.reset()
    run.ask(prompt(8))
    gone = run.events.of(MEDIUM_CPU, BlockRemoved)
    assert [8, 8] == [len(e.block_hashes) for e in gone]


def test_groups_with_blocks_of_one_size_say_the_same_of_them(follow):
    """Two windows longer than the prompt: the same blocks, each with its own window."""
    layers = stack("WV", W=window(SMALL, 512, 16), V=window(SMALL, 1024, 16))
    run = follow(plan(layers, prompt_tokens=200, extra_config=SETTINGS))
    tokens = prompt(129)
    run.ask(tokens)
    one, two = run.events.of(MEDIUM_CPU)
    assert one.group_idx != two.group_idx
    windows = {e.kv_cache_spec_sliding_window for e in (one, two)}
    assert {512, 1024} == windows
    assert 8 == len(one.block_hashes)
    assert tokens[:128] == one.token_ids
    fields = ("block_hashes", "token_ids", "parent_block_hash", "extra_keys", "medium")
    assert all(getattr(one, name) == getattr(two, name) for name in fields)


def test_a_request_goes_with_what_was_told_of_it(follow):
    """A cell that stays in host memory keeps nothing of the request that filled it."""
    run = follow(plan(FULL_16, prompt_tokens=200, extra_config=SETTINGS))
    answer = run.ask(prompt(65))
    content = weakref.ref(answer.request)
    assert all(node.cells[0].is_announced for node in run.index.nodes.values())
    notices = [cell.notice for n in run.index.nodes.values() for cell in n.cells]
    assert not any(isinstance(notice, tuple) for notice in notices)
    run.answers.clear()
    del answer
    run.ask(prompt(8), new_tokens=40)
    gc.collect()
    assert content() is None
