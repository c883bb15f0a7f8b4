"""Wrong inputs: each ends as one sentence with key, value and remedy, exit code 2."""

import itertools
import json
import re

import pytest

from kvcellar.cli import main

MODEL = ["--model", "gemma-3-27b"]
SIZES = ("host-memory", "host-memory-per-rank", "device-memory", "node-memory", "disk")
NUMBERS = (
    *("tensor-parallel", "pipeline-parallel", "data-parallel", "nodes", "block-tokens"),
    *("max-model-len", "step-tokens", "prompt-tokens", "concurrency"),
    *("chunk-tokens", "blocks-per-chunk"),
)
SPEEDS = (
    *("prefill-tokens-per-second", "load-bytes-per-second", "store-bytes-per-second"),
    *("decode-seconds-per-token", "step-seconds"),
)
BAD_SIZES = ("much", "0", "-3GiB", "12 parsecs", "1.5", "0x10", "")
BAD_NUMBERS = ("two", "0", "-1", "1.5", "1e3", "9" * 40)
BAD_SPEEDS = ("fast", "-1", "nan", "inf")
# (arguments, words that the sentence must have besides the value)
IMPOSSIBLE: list[tuple[list[str], str]] = [
    (["--model", "gpt-5"], "'gpt-5' is neither a file"),
    (["--model", ""], "model=''"),
    (["--model", "/no/such/folder"], "'/no/such/folder' is neither a file"),
    (["--model", "gemma-3-27"], "did you mean gemma-3-27b"),
    ([*MODEL, "--tensor-parallel", "3"], "tensor_parallel=3"),
    ([*MODEL, "--tensor-parallel", "64"], "tensor_parallel=64"),
    ([*MODEL, "--pipeline-parallel", "63"], "pipeline_parallel=63"),
    (["--model", "nemotron-h", "--pipeline-parallel", "52"], "pipeline_parallel=52"),
    ([*MODEL, "--nodes", "2"], "nodes=2"),
    ([*MODEL, "--tensor-parallel", "4", "--nodes", "3"], "nodes=3"),
    ([*MODEL, "--cache-dtype", "fp9"], "cache_dtype='fp9'"),
    ([*MODEL, "--cache-dtype", "fp8_ds_mla"], "cache_dtype='fp8_ds_mla'"),
    (
        ["--model", "deepseek-v4-flash", "--cache-dtype", "float16"],
        "cache_dtype='float16'",
    ),
    ([*MODEL, "--state-dtype", "int8"], "state_dtype='int8'"),
    (["--model", "deepseek-v4-flash", "--block-tokens", "16"], "block_tokens=16"),
    ([*MODEL, "--block-tokens", "24"], "block_tokens=24"),
    ([*MODEL, "--chunk-tokens", "24"], "chunk_tokens=24"),
    (["--model", "nemotron-h", "--chunk-tokens", "512"], "chunk_tokens=512"),
    ([*MODEL, "--mode", "quick"], "mode='quick'"),
    ([*MODEL, "--max-model-len", "131073"], "max_model_len=131073"),
    ([*MODEL, "--prompt-tokens", "131073"], "prompt_tokens=131073"),
    (
        [*MODEL, "--max-model-len", "4096", "--prompt-tokens", "5000"],
        "prompt_tokens=5000",
    ),
    ([*MODEL, "--host-memory", "1MiB"], "host memory of 1048576 bytes"),
    ([*MODEL, "--host-memory", "10"], "host memory of 10 bytes"),
    ([*MODEL, "--device-memory", "1MiB"], "device_memory=1048576"),
    ([*MODEL, "--gpu", "h900"], "gpu='h900'"),
    ([*MODEL, "--costs", "/no/speeds.json"], "costs='/no/speeds.json'"),
    ([*MODEL, "--active-parameters", "0"], "active_parameters=0"),
    ([*MODEL, "--active-parameters", "many"], "active_parameters='many'"),
    # flags that contradict each other
    (
        [*MODEL, "--host-memory", "8GiB", "--host-memory-per-rank", "8GiB"],
        "host_memory='8GiB' and host_memory_per_rank='8GiB'",
    ),
    (
        [*MODEL, "--chunk-tokens", "64", "--blocks-per-chunk", "4"],
        "chunk_tokens=64 and blocks_per_chunk=4",
    ),
    ([*MODEL, "--no-time", "--gpu", "h100"], "--gpu h100"),
    ([*MODEL, "--no-time", "--step-seconds", "1"], "--step-seconds 1"),
    (
        [*MODEL, "--host-memory", "8TiB", "--node-memory", "2TiB"],
        "node_memory=2199023255552",
    ),
    (
        [
            *(*MODEL, "--host-memory-per-rank", "512GiB", "--tensor-parallel", "8"),
            *("--node-memory", "2TiB"),
        ],
        "512 GiB x 8 rank(s) = 4 TiB",
    ),
    # words that are no option
    ([*MODEL, "--hostmemory", "8GiB"], "--hostmemory 8GiB; did you mean --host-memory"),
    ([*MODEL, "--tp", "2"], "--tp 2"),
    ([*MODEL, "8GiB"], "unrecognized arguments: 8GiB"),
    ([*MODEL, "--", "--port", "1"], "unrecognized arguments: --port 1"),
    ([*MODEL, "--host-memory"], "--host-memory"),
    (["--host-memory", "8GiB"], "--model"),
]
GENERATED = [
    ([*MODEL, f"--{name}", value], f"{name.replace('-', '_')}=")
    for names, values in (
        (SIZES, BAD_SIZES),
        (NUMBERS, BAD_NUMBERS),
        (SPEEDS, BAD_SPEEDS),
    )
    for name, value in itertools.product(names, values)
]
REMEDY = re.compile(
    r"(?:;|, so) (use|write|give|name|remove|keep|pass|add|see|leave|lower|did you)\b|"
    r"at least \d+ bytes"
)


def refusal(arguments, capsys):
    """The one line on stderr; exit code 2 and nothing on stdout."""
    try:
        code = main.main(["plan", *arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert (2, "") == (code, captured.out), captured.out + captured.err
    assert 1 == captured.err.count("\n")
    assert captured.err.startswith("kvcellar: ")
    return captured.err.removeprefix("kvcellar: ").rstrip("\n")


@pytest.mark.parametrize(("arguments", "words"), GENERATED + IMPOSSIBLE)
def test_each_is_one_sentence_with_key_value_and_remedy(arguments, words, capsys):
    """More than a hundred of them, and no traceback for any."""
    said = refusal(arguments, capsys)
    assert words in said
    if (arguments, words) in GENERATED:
        value = arguments[-1]
        assert value.lstrip("-") in said
    assert REMEDY.search(said), said
    assert said[0].islower() or not said[0].isalpha()
    assert not said.endswith(".")


def test_there_are_more_than_a_hundred():
    """As many as were promised, and each another one."""
    cases = [tuple(arguments) for arguments, _ in GENERATED + IMPOSSIBLE]
    assert len(set(cases)) == len(cases) > 150


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("no json", "is not JSON"),
        ("[1]", "no JSON object"),
        ("{}", "architectures"),
        ('{"architectures": ["LlamaForCausalLM"]}', "num_hidden_layers"),
        (
            '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": "four"}',
            "num_hidden_layers='four'",
        ),
    ],
)
def test_a_configuration_that_says_nothing_is_refused(content, words, tmp_path, capsys):
    """The file is named, and what is missing in it."""
    path = tmp_path / "config.json"
    path.write_text(content)
    assert words in refusal(["--model", str(path)], capsys)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"speed": 1}, "unknown name 'speed'"),
        ({"load_bytes_per_second": "1"}, "load_bytes_per_second='1'"),
        ({"load_bytes_per_second": 0}, "load_bytes_per_second=0"),
        ([], "no JSON object"),
    ],
)
def test_a_file_of_speeds_that_is_wrong_is_refused(content, words, tmp_path, capsys):
    """As the replay refuses it."""
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps(content))
    assert words in refusal([*MODEL, "--costs", str(path)], capsys)


def test_an_unknown_architecture_is_a_failure_and_no_misuse(tmp_path, capsys):
    """Exit code 1, with the architectures that are known."""
    path = tmp_path / "config.json"
    path.write_text('{"architectures": ["RuneForCausalLM"]}')
    assert 1 == main.main(["plan", "--model", str(path)])
    assert "RuneForCausalLM are not known" in capsys.readouterr().err
