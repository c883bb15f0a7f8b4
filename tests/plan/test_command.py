"""``kvcellar plan`` from its options to its output."""

import itertools
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from plans import plan_of

import kvcellar
from kvcellar.cli import main, plan_command
from kvcellar.config import settings_from_extra_config
from kvcellar.layout.models import MODEL_NAMES
from kvcellar.plan.report.json import content_of
from kvcellar.plan.report.text import text_of
from kvcellar.replay.presets import GPUS
from kvcellar.replay.presets_choice import COST_NAMES

FLASH = ["plan", "--model", "deepseek-v4-flash", "--host-memory", "64GiB"]
README = Path(kvcellar.__file__).parents[2] / "README.md"


@pytest.mark.parametrize("more", [[], ["--json"], ["--device-memory", "40GiB"]])
def test_a_plan_imports_neither_torch_nor_vllm(more):
    """Nor transformers: the whole plan is integers."""
    script = (
        "import sys\n"
        "from kvcellar.cli.main import main\n"
        f"code = main({[*FLASH, *more]!r})\n"
        "heavy = {'torch', 'vllm', 'transformers', 'numpy'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "0 []\n" == done.stderr
    assert "deepseek-v4-flash" in done.stdout


def test_what_matters_comes_first(capsys):
    """What fits, what is wrong and what to run; then where it comes from."""
    options = ["--device-memory", "200GiB", "--mode", "eager", "--disk", "1TiB"]
    options += ["--concurrency", "3500"]
    assert 0 == main.main([*FLASH, *options])
    out = capsys.readouterr().out
    order = [
        "kvcellar plan: deepseek-v4-flash, fp8_ds_mla cache, 1 GPU",
        "64 GiB of host memory keeps 3,454 prompts of 4,096 tokens ready",
        "! 3,500 requests of 4,096 tokens are to run at once",
        "  -> give --host-memory 65GiB or more, or use --mode lazy",
        "! disk of 1 TiB",
        "run it",
        "kvcellar serve deepseek-ai/DeepSeek-V4-Flash --host-memory 64GiB --mode lazy",
        "vllm serve deepseek-ai/DeepSeek-V4-Flash",
        "what fits",
        "how it multiplies",
        "64 GiB x 1 rank = 64 GiB",
        "hits",
        "can ever hit has 257 tokens",
        "load or recompute",
        "break-even: loading pays from 256 tokens on",
        "eager or lazy",
        "cache groups, one rank",
        "the server's log will say",
        "notes",
    ]
    places = [out.index(words) for words in order]
    assert sorted(places) == places


def test_text_fits_a_terminal():
    """But for commands, tables of groups and log lines, which are to be copied."""
    copied = ("  kvcellar serve", "  vllm serve", "  kvcellar: ", "  GPU KV")
    for width, model, options in itertools.product(
        (80, 100),
        ("gemma-3-27b", "deepseek-v4-flash"),
        ({"device_memory": "30GiB"}, {}),
    ):
        plan = plan_of(model, tensor_parallel=2, **options)
        long = [t for t in text_of(plan, width).splitlines() if len(t) > width]
        assert [line for line in long if not line.startswith(copied)] == []


def test_json_is_one_object_with_the_same_figures(capsys):
    """Sizes in bytes, and the findings under their names."""
    assert 0 == main.main([*FLASH, "--json", "--prompt-tokens", "200"])
    content = json.loads(capsys.readouterr().out)
    planned = plan_of("deepseek-v4-flash", host_memory="64GiB", prompt_tokens=200)
    assert json.loads(json.dumps(content_of(planned))) == content
    assert 257 == content["units"]["shortest_prompt_tokens"]
    assert ["chunk-above-prompt"] == [w["name"] for w in content["warnings"]]
    assert {"asked_bytes": None, "is_served": False} == content["disk"]


def test_the_vllm_line_is_accepted_by_the_connector():
    """All settings of the plan, under names and of types that it reads."""
    planned = plan_of(
        "google/gemma-3-27b-it",
        host_memory_per_rank="40GiB",
        tensor_parallel=2,
        chunk_tokens=64,
        cache_dtype="fp8",
        step_tokens=4096,
        no_async_scheduling=True,
    )
    words = shlex.split(planned.commands.vllm_serve)
    assert ["vllm", "serve", "google/gemma-3-27b-it"] == words[:3]
    config = json.loads(words[words.index("--kv-transfer-config") + 1])
    settings = settings_from_extra_config(config["kv_connector_extra_config"])
    assert (80 * 2**30, 64, "eager") == (
        settings.host_memory_bytes,
        settings.chunk_tokens,
        settings.mode,
    )
    assert "recompute" == config["kv_load_failure_policy"]
    assert {
        ("--tensor-parallel-size", "2"),
        ("--kv-cache-dtype", "fp8"),
        ("--max-num-batched-tokens", "4096"),
    } <= set(itertools.pairwise(words))
    assert "--no-async-scheduling" in words
    # It has no option for the chunk, so it cannot run this plan.
    assert planned.commands.kvcellar_serve is None


def test_the_serve_line_parses_as_what_was_planned():
    """``kvcellar serve`` takes its own part and passes on the engine's."""
    planned = plan_of("llama-3.1-8b", host_memory="1536MiB", tensor_parallel=4)
    words = shlex.split(planned.commands.kvcellar_serve)
    options, rest = main.build_parser().parse_known_args(words[1:])
    assert ("meta-llama/Llama-3.1-8B-Instruct", "1536MiB", "eager") == (
        options.model,
        options.host_memory,
        options.mode,
    )
    assert ["--tensor-parallel-size", "4"] == rest


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_of_the_catalogue_has_a_name_on_the_hub(name):
    """So that both lines can be run as they are."""
    commands = plan_of(name, host_memory="64GiB").commands
    owner, slash, _ = shlex.split(commands.vllm_serve)[2].partition("/")
    assert (True, "/") == (bool(owner), slash)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_local_model_is_served_from_its_folder(kind, tmp_path):
    """Whether its folder or its config.json was named."""
    content = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 64,
        "max_position_embeddings": 8192,
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    named = tmp_path if kind == "folder" else tmp_path / "config.json"
    words = shlex.split(plan_of(named).commands.kvcellar_serve)
    assert str(tmp_path) == words[2]


def test_the_light_parser_offers_what_the_heavy_modules_read():
    """Speeds and GPUs are named twice, so that help starts fast."""
    speeds = {name.replace("-", "_") for name in plan_command.VALUES}
    assert set(COST_NAMES) < speeds
    text = " ".join(
        meaning
        for options in plan_command.OPTIONS.values()
        for _, meaning in options.values()
    )
    assert all(gpu in text for gpu in GPUS)


def test_the_readme_shows_this_output():
    """The lines of its example are lines of the real output, in their order."""
    readme = README.read_text(encoding="utf-8")
    _, _, rest = readme.partition("## What fits?")
    example = rest.split("```")[3].strip("\n").splitlines()
    planned = plan_of("deepseek-v4-flash", host_memory="64GiB", device_memory="40GiB")
    text = iter(text_of(planned).splitlines())
    assert len(example) > 8
    assert [line for line in example if line != "..." and line not in text] == []
