"""Assumed speeds: formulas, where they come from, and what wins."""

import json

import pytest

from kvcellar.errors import ConfigError
from kvcellar.layout.models import MODEL_NAMES
from kvcellar.replay.costs import NO_TIME
from kvcellar.replay.presets import (
    ACTIVE_PARAMETERS,
    GPUS,
    active_parameters,
    gpu_named,
    preset_costs,
)
from kvcellar.replay.presets_choice import (
    COST_NAMES,
    CostChoice,
    choose_costs,
    read_costs,
)


def test_the_formulas_are_those_of_the_module():
    """An H100 with 8 billion parameters, worked out by hand."""
    costs = preset_costs(gpu_named("H100"), 8e9, 1)
    assert costs.prefill_tokens_per_second == pytest.approx(989e12 * 0.5 / 16e9)
    assert costs.decode_seconds_per_token == pytest.approx(0.005 + 16e9 / 2.01e12)
    assert costs.load_bytes_per_second == pytest.approx(50.4e9)
    assert costs.store_bytes_per_second == costs.load_bytes_per_second
    assert 0.005 == costs.step_seconds


def test_more_gpus_compute_faster_and_each_copies_as_fast():
    """Bytes are one GPU's, so its link is all that counts."""
    one, four = (preset_costs(GPUS["a100"], 70e9, n) for n in (1, 4))
    assert four.prefill_tokens_per_second == 4 * one.prefill_tokens_per_second
    assert four.decode_seconds_per_token < one.decode_seconds_per_token
    assert four.load_bytes_per_second == one.load_bytes_per_second


def test_every_model_of_the_catalogue_has_its_parameters():
    """By its own and by its checkpoints' names."""
    assert set(MODEL_NAMES) == set(ACTIVE_PARAMETERS)
    assert 27e9 == active_parameters("google/gemma-3-27b-it")
    assert active_parameters("my-own-model") is None


def test_options_win_over_the_file_and_the_file_over_the_preset(tmp_path):
    """Each speed says where it comes from."""
    file = tmp_path / "costs.json"
    measured = {"prefill_tokens_per_second": 5000, "load_bytes_per_second": 2e10}
    file.write_text(json.dumps(measured))
    choice = CostChoice(
        costs_path=str(file), given={"load_bytes_per_second": 1e10}, gpu="l40s"
    )
    chosen = choose_costs(choice, "llama-3.1-8b", 1)
    assert 5000 == chosen.costs.prefill_tokens_per_second
    assert 1e10 == chosen.costs.load_bytes_per_second
    assert 31.5e9 * 0.8 == chosen.costs.store_bytes_per_second
    assert {
        "prefill_tokens_per_second": "file",
        "decode_seconds_per_token": "preset",
        "load_bytes_per_second": "option",
        "store_bytes_per_second": "preset",
        "step_seconds": "preset",
    } == chosen.sources
    assert "1 x l40s, 8 billion parameters used" == chosen.preset


def test_an_unknown_model_needs_its_parameters_or_all_speeds():
    """And says so by the speed that is missing."""
    with pytest.raises(ConfigError, match="prefill_tokens_per_second cannot be"):
        choose_costs(CostChoice(), "my-own-model", 1)
    known = choose_costs(CostChoice(active_parameters=8e9), "my-own-model", 1)
    named = choose_costs(CostChoice(), "llama-3.1-8b", 1)
    assert known.costs == named.costs
    given = dict.fromkeys(COST_NAMES, 1.0)
    del given["step_seconds"]
    chosen = choose_costs(CostChoice(given=given), "my-own-model", 1)
    assert ("", 0.005) == (chosen.preset, chosen.costs.step_seconds)


def test_no_time_is_no_time_and_takes_no_speeds():
    """A speed beside it would mean nothing, so it is refused."""
    chosen = choose_costs(CostChoice(is_timeless=True), "my-own-model", 1)
    assert (True, NO_TIME) == (chosen.is_timeless, chosen.costs)
    for field, option in (("gpu", "--gpu"), ("costs_path", "--costs")):
        with pytest.raises(ConfigError, match=option):
            choose_costs(CostChoice(is_timeless=True, **{field: "x"}), "m", 1)
    given = {"step_seconds": 0.0}
    with pytest.raises(ConfigError, match="--step-seconds"):
        choose_costs(CostChoice(is_timeless=True, given=given), "m", 1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON"),
        ("[1]", "no JSON object"),
        ('{"speed": 1}', "unknown name 'speed'"),
        ('{"step_seconds": "1"}', "is no number"),
        ('{"step_seconds": true}', "is no number"),
        ('{"step_seconds": NaN}', "is no number"),
        ('{"step_seconds": -1}', "above zero"),
        ('{"load_bytes_per_second": 0}', "above zero"),
    ],
)
def test_a_wrong_file_is_refused(content, words, tmp_path):
    """With the file, the name and the value."""
    file = tmp_path / "costs.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        read_costs(str(file))
    assert str(file) in str(caught.value)


def test_a_missing_file_and_an_unknown_gpu_are_refused(tmp_path):
    """By name."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_costs(str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match="gpu='abacus'"):
        choose_costs(CostChoice(gpu="abacus", given={}), "llama-3.1-8b", 1)
    with pytest.raises(ConfigError, match="active_parameters=-1"):
        choose_costs(CostChoice(active_parameters=-1.0), "my-own-model", 1)
