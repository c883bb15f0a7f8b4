import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.demo import target
from kvcellar.demo.budget import GroupSpan, group_spans, num_device_blocks
from kvcellar.demo.recipes import RECIPES
from kvcellar.errors import ConfigError

GEMMA3_270M = {
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    "sliding_window": 512,
}
GPT_OSS_20B = {
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "sliding_window": 128,
}


def spans(config: dict[str, object]) -> list[int | None]:
    return [span.span_tokens for span in group_spans(config)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GEMMA3_270M, [512] * 5 + [None]),
        ({"text_config": GEMMA3_270M}, [512] * 5 + [None]),
        (GPT_OSS_20B, [128, None]),
        ({}, [None]),
        ({"sliding_window": 4096}, [None]),
        (RECIPES["gemma3"].config, [256, 256, None]),
        (RECIPES["llama4"].config, [None]),
    ],
)
def test_groups_are_those_the_engine_forms(
    config: dict[str, object], expected: list[int | None]
):
    """Groups follow the model's layer types; without them one full group is assumed."""
    assert spans(config) == expected


def test_blocks_of_one_running_prompt_are_the_engines():
    """A request of 4096 tokens takes 274 blocks, as vLLM's start-up log has it.

    The log of the tiny Gemma 3: 400 blocks are 1.46 requests of 4096 tokens.
    """
    tiny = group_spans(RECIPES["gemma3"].config)
    running = sum(span.running_blocks(4096, 32) for span in tiny)
    assert running == 128 + 2 * 73
    assert round(400 / running, 2) == 1.46


@given(
    st.lists(st.builds(GroupSpan, st.none() | st.integers(1, 4096)), min_size=1),
    st.integers(1, 4096),
    st.sampled_from([16, 32, 128]),
)
def test_device_holds_one_running_prompt_and_a_few_held(
    groups: list[GroupSpan], num_tokens: int, block_tokens: int
):
    """Whatever the groups, the blocks suffice to run one prompt and to hold three."""
    num_blocks = num_device_blocks(groups, num_tokens, 4096, block_tokens)
    assert num_blocks > 3 * sum(g.held_blocks(num_tokens, block_tokens) for g in groups)
    assert num_blocks > sum(g.running_blocks(4096, block_tokens) for g in groups)
    for group in groups:
        held = group.held_blocks(num_tokens, block_tokens)
        assert held <= group.running_blocks(num_tokens, block_tokens)


@dataclass
class _Folder:
    path: Path

    def write(self, text: str) -> str:
        (self.path / "config.json").write_text(text)
        return str(self.path)


@pytest.fixture
def folder(tmp_path: Path) -> _Folder:
    return _Folder(tmp_path)


def test_local_model_gets_a_fitting_block_size(folder: _Folder):
    """Chunked local attention needs blocks of 128 tokens, others take 32."""
    plain = target.local_target(folder.write(json.dumps(GEMMA3_270M)))
    assert plain.block_tokens == 32
    chunked = {"layer_types": ["chunked_attention"], "attention_chunk_size": 256}
    assert target.local_target(folder.write(json.dumps(chunked))).block_tokens == 128


def test_server_arguments_make_the_cache_small(folder: _Folder):
    """The arguments bound the cache and make each answer say what was cached."""
    made = target.local_target(folder.write("{}"))
    arguments = made.vllm_arguments(1234)
    blocks = arguments[arguments.index("--num-gpu-blocks-override") + 1]
    assert blocks == str(made.num_device_blocks)
    assert "--enable-prompt-tokens-details" in arguments
    assert arguments[arguments.index("--port") + 1] == "1234"


def test_broken_configuration_is_refused(folder: _Folder):
    """A config.json that is no JSON is named."""
    with pytest.raises(ConfigError, match=r"config\.json is not JSON"):
        target.local_target(folder.write("{"))


def test_model_must_be_a_folder(tmp_path: Path):
    """The demo takes local models only."""
    with pytest.raises(ConfigError, match="is not a folder"):
        target.local_target("org/name")
