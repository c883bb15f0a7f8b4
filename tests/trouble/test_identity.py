"""Rows about what a key stands for: adapters, pictures, salts."""

import pytest

pytest.importorskip("vllm")

from scripted import prompt
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

FULL_16 = stack("FF", F=full(SMALL, 16))


def adapter(name, number, path="/one"):
    return LoRARequest(lora_name=name, lora_int_id=number, lora_path=path)


def picture(name):
    """A picture of 16 tokens, from token 16 on."""
    place = PlaceholderRange(offset=16, length=16)
    return MultiModalFeatureSpec(
        data=None, modality="image", identifier=name, mm_position=place, mm_hash=name
    )


def seen(tokens, seed):
    """What the cache holds when equal placeholders stand for picture ``seed``."""
    return tokens[:16] + prompt(16, seed) + tokens[32:]


def test_vllm_44250_adapters_never_share(engine):
    """Adapters a, b, none, and a from another place: four disjoint sets of keys."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(65)
    wanted = (adapter("a", 1), adapter("b", 2), None, adapter("a", 1, "/other"))
    hits, keys = [], set()
    for lora in wanted:
        answer = run.ask(tokens, lora_request=lora)
        hits.append(answer.hit_tokens)
        keys |= set(answer.request.block_hashes)
    assert ([0] * 4, 16) == (hits, len(keys))
    assert 16 == len(run.index.nodes)
    run.drop_device()
    again = [run.ask(tokens, lora_request=lora).loaded_tokens for lora in wanted]
    assert [64] * 4 == again


def test_llm_d_router_2927_a_key_with_an_adapter_is_another(engine):
    """The same block with and without adapter a1 has two keys, stable in themselves."""
    run = engine(FULL_16, prompt_tokens=200)
    keys = [
        tuple(run.ask(prompt(17), lora_request=lora).request.block_hashes)
        for lora in (adapter("a1", 1), None, adapter("a1", 1))
    ]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_vllm_21175_another_picture_is_another_prompt(engine):
    """Equal token ids, pictures m1 and m2 at 16: only block 0 is shared."""
    run = engine(FULL_16, prompt_tokens=200)
    run.take_pictures()
    tokens = prompt(65)

    def ask(name, seed):
        content = seen(tokens, seed)
        return run.ask(tokens, content=content, mm_features=[picture(name)])

    first = ask("m1", 1)
    run.drop_device()
    other = ask("m2", 2)
    run.drop_device()
    same = ask("m1", 1)
    shared = [
        a == b
        for a, b in zip(
            first.request.block_hashes, other.request.block_hashes, strict=True
        )
    ]
    assert [True, False, False, False] == shared
    assert [16, 64] == [other.loaded_tokens, same.loaded_tokens]


def test_vllm_51875_a_salt_makes_other_keys(engine):
    """The same prompt under another salt is found under its own salt alone."""
    run = engine(FULL_16, prompt_tokens=200)
    tokens = prompt(65)
    run.ask(tokens, cache_salt="one")
    run.drop_device()
    assert 0 == run.ask(tokens, cache_salt="two").hit_tokens
    run.drop_device()
    assert 64 == run.ask(tokens, cache_salt="one").loaded_tokens


def test_vllm_51875_two_fresh_engines_make_the_same_keys(engine):
    """Nothing random is at the root of the keys."""
    keys = [
        engine(FULL_16, prompt_tokens=200).ask(prompt(65)).request.block_hashes
        for _ in range(2)
    ]
    assert keys[0] == keys[1]
