"""From a name, a file or a configuration to a layout."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.groups import AttentionKind
from kvcellar.layout.models import MODEL_NAMES, ServingOptions, model_layout
from kvcellar.layout.models.catalogue import ALIASES, CONFIGS
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families import model_layers

HEAVY = ("torch", "vllm", "transformers", "numpy")


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_name_a_file_and_its_content_agree(name: str, tmp_path: Path):
    """The catalogue's numbers are read like any configuration."""
    (tmp_path / "config.json").write_text(json.dumps(dict(CONFIGS[name])))
    by_name = model_layout(name)
    assert by_name.layout == model_layout(CONFIGS[name]).layout
    assert by_name.layout == model_layout(tmp_path / "config.json").layout
    assert by_name.layout == model_layout(str(tmp_path)).layout


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *ALIASES.items(),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next"),
        ("deepseek-ai/DeepSeek-V4-Flash", "deepseek-v4-flash"),
    ],
)
def test_other_names_lead_to_the_catalogue(given: str, name: str):
    """Aliases and checkpoints' names are known by the catalogue's."""
    assert name == model_layout(given).name


def test_an_unknown_name_gets_the_nearest():
    """The message suggests what was meant, and lists all there are."""
    with pytest.raises(ConfigError, match="did you mean gpt-oss-20b") as caught:
        model_layout("gpt-os-20b")
    assert all(name in str(caught.value) for name in MODEL_NAMES)


def test_a_name_like_no_other_gets_no_suggestion():
    """Nothing is suggested at random."""
    with pytest.raises(ConfigError, match=r"catalogue; pass a config\.json"):
        model_layout("%%%%")


def test_a_file_is_named_after_its_folder(tmp_path: Path):
    """The name in messages is the checkpoint's, not ``config.json``."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(CONFIGS["llama-3.1-8b"])))
    assert "my-model" == model_layout(folder).name
    assert "my-model" == model_layout(folder / "config.json").name


def test_deepseek_v4_flash_as_measured():
    """Groups, bytes and units are those that vLLM 0.32 prints for it."""
    found = model_layout("deepseek-v4-flash")
    assert [
        ("window", 64, 822272, 823680, 22, 128),
        ("window", 64, 784896, 786240, 21, 128),
        ("full", 256, 985664, 1002240, 62, None),
        ("window", 4, 860160, 870912, 42, 8),
        ("window", 8, 655360, 656640, 20, 128),
    ] == [
        (
            g.kind,
            g.tokens_per_block,
            g.payload_bytes,
            g.padded_bytes,
            g.num_layers,
            g.span_tokens,
        )
        for g in found.layout.groups
    ]
    assert 1002240 == found.row_bytes
    assert (4, 256, 256) == (
        found.layout.hash_block_tokens,
        found.layout.alignment_tokens,
        found.layout.scheduler_block_tokens,
    )


def test_the_dead_state_rule_shortens_compressors_windows():
    """Under the rule a resume needs one token of four, and none of 128."""
    found = model_layout("deepseek-v4-flash", pipeline_parallel=2).without_dead_state
    assert [128, 128, None, 5, 1] == [g.span_tokens for g in found.layout.groups]
    assert found.layout == found.stages[0].layout
    assert [5, 1] == [g.span_tokens for g in found.stages[1].layout.groups[3:]]


def test_models_without_compressors_stay_as_they_are():
    """The rule has nothing to say about other windows."""
    found = model_layout("gemma-3-27b")
    assert found == found.without_dead_state


def test_a_row_is_the_widest_groups_block():
    """Each block of each group costs as much as one of the widest."""
    found = model_layout("gemma-3-27b")
    assert 10 * 131072 == found.row_bytes
    assert found.row_bytes == max(g.padded_bytes for g in found.groups_all)


def test_scratch_groups_are_listed_but_not_laid_out():
    """Replayed windows and rings cost device blocks and are never stored."""
    found = model_layout(
        {
            "architectures": ["DeepseekV41ForCausalLM"],
            "num_hidden_layers": 6,
            "num_attention_heads": 64,
            "head_dim": 512,
            "index_head_dim": 128,
            "sliding_window": 128,
            "compress_ratios": [0, 0, 2, 2, 1, 1],
            "kv_source_layer_ids": [2, 4],
            "index_source_layer_ids": [2, 4],
        }
    )
    scratch = [group for group in found.groups_all if not group.is_cacheable]
    assert {AttentionKind.WINDOW, None} == {group.kind for group in scratch}
    assert [AttentionKind.FULL] == [group.kind for group in found.layout.groups]
    assert {} == found.compressor_ratios
    ring = next(group for group in scratch if group.kind is None)
    assert 1 == ring.blocks_per_request(100000, 8192)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("llama-3.1-8b", [63]),
        ("gpt-oss-20b", [(127 + 256 + 15) // 16 + 1, 63]),
        ("llama-4", [63, 63, 63, 63]),
        ("qwen3-next", [2, 2, 2, 2]),
        ("nemotron-h", [3, 3, 3, 3, 3, 3, 1]),
    ],
)
def test_blocks_of_one_request(name: str, blocks: list[int]):
    """A request of 1000 tokens, 256 of them in flight, holds so many of each group."""
    found = model_layout(name)
    assert blocks == [g.blocks_per_request(1000, 256) for g in found.groups_all]
    assert sum(blocks) == found.blocks_per_request(1000, 256)


def test_stages_add_up_to_the_model():
    """Every byte of the whole model is some stage's."""
    whole = model_layout("deepseek-v4-flash")
    parts = model_layout("deepseek-v4-flash", pipeline_parallel=4)
    assert [(0, 11), (11, 22), (22, 33), (33, 43)] == [
        (stage.first_layer, stage.end_layer) for stage in parts.stages
    ]
    for position, group in enumerate(whole.layout.groups):
        payloads = [s.layout.groups[position].payload_bytes for s in parts.stages]
        assert group.payload_bytes == sum(payloads)


def test_a_stage_may_lack_a_groups_layers():
    """One layer per stage: each holds the bytes of one group, and none of the other."""
    stages = model_layout("gpt-oss-20b", pipeline_parallel=24).stages
    held = [[g.payload_bytes > 0 for g in stage.layout.groups] for stage in stages]
    assert all(sum(one) == 1 for one in held)
    assert {(True, False), (False, True)} == {tuple(one) for one in held}


def test_a_stage_without_any_cache_is_refused():
    """The engine cannot start one."""
    with pytest.raises(IncompatibleError, match="layers 1 to 1 keeps no cache"):
        model_layout("nemotron-h", pipeline_parallel=52)


@pytest.mark.parametrize(
    ("options", "statement"),
    [
        ({}, "bytes are one rank's of 1"),
        (
            {"tensor_parallel": 8, "pipeline_parallel": 2},
            "bytes are one rank's of 16, holding layers 0 to 30; 8 ranks hold the same "
            "bytes",
        ),
    ],
)
def test_the_statement_says_whose_bytes_these_are(options: dict, statement: str):
    """Ranks, layers and copies are said where there are several."""
    assert statement == model_layout("deepseek-v3", **options).rank_statement


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_caches_of_a_model_are_named_once(name: str):
    """No two share a name, so that none is lost where they are told apart by it."""
    layers = model_layers(ModelConfig(CONFIGS[name], name), ServingOptions()).layers
    assert len(layers) == len({layer.name for layer in layers})


def test_nothing_heavy_is_imported():
    """Working out a layout needs the standard library only."""
    code = (
        "import sys; from kvcellar.layout.models import model_layout; "
        "model_layout('deepseek-v4-flash', pipeline_parallel=2).without_dead_state; "
        f"assert not set(sys.modules) & set({HEAVY!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path()})


def path() -> str:
    """Where the package is imported from."""
    import kvcellar

    return str(Path(kvcellar.__file__).parents[1])
