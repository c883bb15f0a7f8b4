"""`make gpu-check` on the fake: it runs to its end, and a failure is a failure."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import torch

from kvcellar.testing.gpu import check
from kvcellar.testing.gpu.faults import Hasty
from kvcellar.testing.gpu.ordering import PLAYS, Play
from kvcellar.testing.gpu.shapes import MODELS, model_shape, page_shape

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu_check.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_sections_run_and_nothing_fails(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Every rule right and its removal noticed, and every figure in the JSON file."""
    path = tmp_path / "figures.json"
    assert 0 == script.main(["--fake", "--json", str(path)])
    found = json.loads(path.read_text("utf-8"))
    assert [] == found["failures"]
    assert {play.rule for play in PLAYS} == {row["rule"] for row in found["ordering"]}
    assert all(row["is_right"] and row["is_noticed"] for row in found["ordering"])
    missed = {row["fault"] for row in found["hunt"] if not row["num_wrong"]}
    assert {""} == missed
    measured = {(row["cache"], row["direction"]) for row in found["copies"]}
    names = (*MODELS, "32 KiB pages", "256 KiB pages", "1024 KiB pages")
    assert {(n, d) for n in names for d in ("store", "load")} == measured
    assert set(names) == {row["cache"] for row in found["overlap"]}
    assert 1 == len(found["pinning"])
    assert "0 checks failed" in capsys.readouterr().out


def test_wrong_bytes_are_a_failure(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Exit code 1, and the rule by name."""
    plays = (Play("never right", lambda rig: False, Hasty),)
    monkeypatch.setattr(check, "PLAYS", plays)
    assert 1 == script.main(["--fake", "--only", "ordering"])
    assert "FAILED wrong bytes: never right" in capsys.readouterr().out


def test_a_fault_that_is_not_noticed_is_a_failure(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A check that cannot fail proves nothing."""
    plays = (Play("always right", lambda rig: True, Hasty),)
    monkeypatch.setattr(check, "PLAYS", plays)
    assert 1 == script.main(["--fake", "--only", "ordering"])
    assert "not noticed without it: always right (Hasty)" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Exit code 2 and one sentence."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert 2 == script.main([])
    assert "PyTorch sees no GPU here; run it where" in capsys.readouterr().err


def test_sections_begin_only_within_the_time(
    script: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    """A machine that is lent for minutes gets an answer in time."""
    assert 0 == script.main(["--fake", "--only", "hunt", "--seconds", "-1"])
    assert "hunt: left out" in capsys.readouterr().out


def test_model_shapes_are_those_of_the_model() -> None:
    """DeepSeek-V4-Flash: 62 pages of three sizes in a chunk, with padding between."""
    shape = model_shape("deepseek-v4-flash", 2**30)
    chunks, checkpoints = shape.groups
    assert {8448 // 8: 21, 37376 // 8: 21, 1168 // 8: 20} == {
        size: chunks.count(size) for size in set(chunks)
    }
    assert 42 == len(checkpoints)
    assert shape.is_block_outermost
    assert shape.num_words * 8 <= 2**30
    assert all(
        sum(room) > sum(pages)
        for room, pages in zip(shape.padded, shape.groups, strict=True)
    )


def test_page_shapes_are_of_the_size_asked_for() -> None:
    """No two pages of a block touch, so that none are joined."""
    shape = page_shape(32 * 2**10, 2**24)
    assert ((4096,) * 4,) == shape.groups
    assert not shape.is_block_outermost
    assert 128 == shape.num_blocks
