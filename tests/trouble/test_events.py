"""Rows about KV events: what a router can learn of host memory."""

import pytest

pytest.importorskip("vllm")

from scripted import prompt
from vllm.distributed.kv_events import MEDIUM_CPU, BlockRemoved, BlockStored
from vllm.lora.request import LoRARequest

from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

FULL_16 = stack("FF", F=full(SMALL, 16))
ADAPTER = LoRARequest(lora_name="a1", lora_int_id=7, lora_path="/one")


@pytest.fixture
def told(engine, monkeypatch):
    """An engine, and all that its connector has told of host memory."""
    from kvcellar.integrations.vllm import planner

    monkeypatch.setattr(planner, "are_followed", lambda config: True)
    run, events = engine(FULL_16, prompt_tokens=200), []
    run.scheduler.connector.take_events = lambda: events.extend(
        run.side.take_kv_events()
    )
    return run, events


def test_vllm_54325_events_name_tokens_parent_adapter_and_medium(told):
    """Two blocks with adapter and salt: all said; what leaves was announced once."""
    run, events = told
    tokens = prompt(33)
    run.ask(tokens, lora_request=ADAPTER, cache_salt="s")
    (stored,) = events
    assert isinstance(stored, BlockStored)
    assert tokens[:32] == stored.token_ids
    assert (2, None) == (len(stored.block_hashes), stored.parent_block_hash)
    assert (MEDIUM_CPU, 16) == (stored.medium, stored.block_size)
    assert ("a1", 7) == (stored.lora_name, stored.lora_id)
    while run.index.evict_one():
        pass
    run.ask(prompt(8))
    removed = events[1:]
    assert {BlockRemoved} == {type(event) for event in removed}
    gone = [key for event in removed for key in event.block_hashes]
    assert sorted(stored.block_hashes) == sorted(gone)


def test_llm_d_router_2927_the_adapter_has_a_field_of_its_own(told):
    """The adapter's name is in its typed field, and media would be pairs: none."""
    run, events = told
    run.ask(prompt(17), lora_request=ADAPTER)
    (event,) = events
    media = [key for key in event.extra_keys[0] if isinstance(key, tuple)]
    assert ("a1", []) == (event.lora_name, media)
