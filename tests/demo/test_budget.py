import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.demo import target
from kvcellar.demo.block_size import block_tokens_for, state_block_tokens
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
LINEAR = ["linear_attention"] * 3 + ["full_attention"]
# Both as published in the models' configurations.
QWEN3_NEXT_80B = {
    "layer_types": LINEAR * 12,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}
TINY_STATE = {
    **RECIPES["qwen3-next"].config,
    "layer_types": LINEAR * 2,
    "linear_conv_kernel_dim": 4,
}


def spans(config: dict[str, object]) -> list[int | str | None]:
    groups = group_spans(config)
    return ["state" if group.is_state else group.span_tokens for group in groups]


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
        (QWEN3_NEXT_80B, ["state"] * 3 + [None]),
        (TINY_STATE, ["state"] * 3 + [None]),
    ],
)
def test_groups_are_those_the_engine_forms(
    config: dict[str, object], expected: list[int | str | None]
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
    st.lists(
        st.builds(GroupSpan, st.none() | st.integers(1, 4096), st.booleans()),
        min_size=1,
    ),
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


def test_a_state_costs_the_same_however_long_the_prompt_is():
    """A state group holds one block per prompt, and two while it runs."""
    state = GroupSpan(None, is_state=True)
    for num_tokens in (1, 256, 4096):
        assert state.held_blocks(num_tokens, 256) == 1
        assert state.running_blocks(num_tokens, 256) == 2


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, 32),
        (GEMMA3_270M, 32),
        ({"layer_types": ["chunked_attention", "full_attention"]}, 128),
        # Page sizes of vLLM's MambaSpec and FullAttentionSpec: 68,608 and 512 bytes.
        (TINY_STATE, 160),
        ({"text_config": TINY_STATE}, 160),
        # Where no head's width is given: 384 numbers in 12 heads.
        ({**TINY_STATE, "head_dim": None, "num_attention_heads": 12}, 288),
        (QWEN3_NEXT_80B, 1056),
    ],
)
def test_block_size_is_one_that_the_engine_takes(
    config: dict[str, object], expected: int
):
    """It follows the layers' kinds; a block of attention holds one state."""
    assert block_tokens_for(config) == expected


def test_recipe_of_a_state_model_has_blocks_as_large_as_its_state():
    """The engine leaves the recipe's block size as it is."""
    assert RECIPES["qwen3-next"].block_tokens >= state_block_tokens(TINY_STATE)


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
