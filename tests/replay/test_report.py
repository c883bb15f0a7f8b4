"""Figures and words of a report: they add up, and say what was assumed."""

import csv
import io
import json
import pathlib

import pytest
from replay_grids import MIB, SPEEDS, report_of, request_of, silent, trace_file

from kvcellar.errors import ConfigError
from kvcellar.replay.grid import GridAxes
from kvcellar.replay.grid_misses import Reason
from kvcellar.replay.grid_request import ModelChoice, TraceChoice, run_request
from kvcellar.replay.presets_choice import CostChoice
from kvcellar.replay.readers import Arrivals
from kvcellar.replay.report.columns import COLUMNS
from kvcellar.replay.report.files import csv_of, json_of, make_folder, write_files
from kvcellar.replay.report.page import page_of
from kvcellar.replay.report.text import text_of
from kvcellar.replay.report.words import plain_text, seconds_text, size_text

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "replay.md"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small trace, written once."""
    return trace_file(tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def report(path):
    """The small grid, played once."""
    return report_of(path)


def test_tokens_of_every_row_add_up(report):
    """By source, by reason, and as shares."""
    for row in report.rows:
        sources = [row[f"{name}_tokens"] for name in ("device", "host", "computed")]
        assert row["prompt_tokens"] == sum(sources)
        missed = [row[f"missed_{reason}_tokens"] for reason in Reason]
        assert row["computed_tokens"] == sum(missed)
        hits = row["device_hit_ratio"] + row["host_hit_ratio"]
        assert row["hit_ratio"] == pytest.approx(hits, abs=1e-5)
        assert row["hit_ratio"] <= row["ceiling_hit_ratio"]
        assert row["evicted_chunks"] >= row["dead_chunks"]
        assert row["evicted_checkpoints"] >= row["superseded_checkpoints"]
        assert 0 < row["ttft_p50_seconds"] <= row["ttft_p99_seconds"]


def test_json_and_csv_hold_the_same_rows(report):
    """Every column, in the same order; numbers survive being read back."""
    content = json.loads(json_of(report))
    lines = list(csv.DictReader(io.StringIO(csv_of(report))))
    names = [column.name for column in COLUMNS]
    for values, line, row in zip(
        content["configurations"], lines, report.rows, strict=True
    ):
        assert names == list(values) == list(line)
        assert values == row
        assert line == {k: "" if v is None else str(v) for k, v in row.items()}


def test_natives_stand_beside_ours(path):
    """In every output; figures that they do not have are empty."""
    axes = GridAxes(
        (40 * MIB,), (0, 100 * MIB), systems=("kvcellar", "simple", "offloading")
    )
    report = report_of(path, axes=axes)
    systems = [row["system"] for row in report.rows]
    assert [None, "kvcellar", "simple", "offloading"] == systems
    for row in report.rows[2:]:
        assert row["policy"] is row["mode"] is row["dead_chunks"] is None
        assert row["stored_chunks"] > 0 < row["host_tokens"]
        assert row["evicted_chunks"] > 0 < row["stored_checkpoints"]
    optional = {"placement", "admission"}
    assert None not in [
        report.rows[1][c.name] for c in COLUMNS if c.name not in optional
    ]
    text = text_of(report)
    assert 5 == sum(" offloading " in line for line in text.splitlines())
    page = page_of(report)
    assert "vLLM's simple" in page
    assert "Of vLLM's own connectors only" in page
    assert 4 == len(csv_of(report).splitlines()) - 1
    assert any("models with default settings" in words for words in report.assumptions)


def test_json_says_what_was_replayed(report):
    """Trace, model, speeds and server, without the machine's paths."""
    content = json.loads(json_of(report))
    assert ("kvcellar-replay", 1) == (content["format"], content["version"])
    assert "small.jsonl" == content["trace"]["name"]
    assert "kvcellar-events" == content["trace"]["format"]
    assert (150, 0) == tuple(
        content["trace"][name] for name in ("num_requests", "num_skipped")
    )
    assert "gemma-3-270m" == content["model"]["name"]
    assert 2000.0 == content["costs"]["prefill_tokens_per_second"]
    assert {"max_num_seqs": 16, "step_tokens": 256} == content["server"]


def test_bytes_and_seconds_are_those_of_all_gpus(path):
    """One rank is simulated, and what it moves is moved by each."""
    one, two = (
        report_of(
            path,
            axes=GridAxes((0,), (64 * 2**30,)),
            model=ModelChoice("llama-3.1-8b", tensor_parallel=num_gpus),
            # Each copies its half of the bytes in the time of the whole.
            costs=CostChoice(
                given={
                    **SPEEDS,
                    "load_bytes_per_second": 1e8 / num_gpus,
                    "store_bytes_per_second": 1e8 / num_gpus,
                }
            ),
        ).rows[0]
        for num_gpus in (1, 2)
    )
    for name in ("stored_bytes", "loaded_bytes", "ttft_p90_seconds"):
        assert one[name] == two[name] > 0
    for name in ("busy_gpu_seconds", "saved_gpu_seconds"):
        assert two[name] == pytest.approx(2 * one[name], abs=2e-3)


def test_without_time_there_are_no_times(path):
    """Neither in the rows nor in the table."""
    report = report_of(path, costs=CostChoice(is_timeless=True))
    row = json.loads(json_of(report))["configurations"][0]
    assert row["ttft_p50_seconds"] is row["busy_gpu_seconds"] is None
    assert report.facts["costs"] is None
    assert "first token" not in text_of(report)
    assert any("Nothing takes time" in sentence for sentence in report.assumptions)


def test_assumptions_follow_what_was_asked(path):
    """Jitter, speed, limit, the trace's coarse blocks, the preset's shares."""
    request = request_of(
        path,
        trace=TraceChoice(
            path, arrivals=Arrivals(jitter_seconds=3.0), limit=50, speed=0.5
        ),
        model=ModelChoice("deepseek-v4-flash"),
        axes=GridAxes((2**30,), (2**30,)),
        costs=CostChoice(),
    )
    words = " ".join(run_request(request, silent).assumptions)
    for part in (
        "spread over 3 s",
        "0.5 times as fast",
        "first 50 requests",
        "multiples of 256 tokens",
        "1 x h100, 13 billion",
        "50% of the GPU's dense bfloat16 peak",
        "does not tell what answers hold",
        "nothing is preempted",
        "no resumed layer reads",
    ):
        assert part in words


def test_coarse_blocks_are_told(tmp_path):
    """Where the trace, not the model, sets the resume points."""
    path = trace_file(tmp_path, block_tokens=64)
    report = report_of(path, axes=GridAxes((0,), (100 * MIB,)))
    assert 64 == report.facts["model"]["resume_tokens"]
    assert any("every 64 tokens only" in words for words in report.assumptions)


def test_remarks_warn_of_overload_bursts_and_requests_left_out(path):
    """A quiet grid has none of them."""
    fast = TraceChoice(path, speed=1e6)
    report = report_of(path, trace=fast, axes=GridAxes((60 * MIB,), (0,)))
    assert any("measure the backlog" in remark for remark in report.remarks)
    small = report_of(
        path, model=ModelChoice("llama-3.1-8b"), axes=GridAxes((60 * MIB,), (0,))
    )
    assert any("larger than the device cache" in r for r in small.remarks)
    assert small.rows[0]["num_too_long"] > 0
    quiet = report_of(
        path,
        trace=TraceChoice(path, speed=0.1),
        axes=GridAxes((2**30,), (2**30,)),
    )
    assert () == quiet.remarks


def test_equal_stamps_are_remarked(tmp_path):
    """They look like bursts and may be none."""
    lines = ['{"format": "kvcellar-events", "version": 1, "block_tokens": 16}']
    request = '{"t": %d, "prompt_tokens": 40, "output_tokens": 2, "blocks": [1, 2]}'
    lines += [request % (number // 5 * 3) for number in range(50)]
    (tmp_path / "coarse.jsonl").write_text("\n".join(lines))
    path = str(tmp_path / "coarse.jsonl")
    axes = GridAxes((2**30,), (0,))
    assert any("--jitter" in remark for remark in report_of(path, axes=axes).remarks)
    spread = TraceChoice(path, arrivals=Arrivals(jitter_seconds=3.0))
    assert () == report_of(path, axes=axes, trace=spread).remarks
    first_five = TraceChoice(path, limit=5)
    (remark,) = report_of(path, axes=axes, trace=first_five).remarks
    assert "All requests arrive at the same moment" in remark


def test_files_are_written_over_those_of_before(report, tmp_path):
    """Into a folder made for them; a file in its place is refused."""
    folder = make_folder(str(tmp_path / "deep" / "down"))
    for _ in range(2):
        paths = write_files(report, folder)
    assert ["replay.csv", "replay.json", "replay.html"] == [p.name for p in paths]
    assert json_of(report) == paths[1].read_text()
    with pytest.raises(ConfigError, match="cannot be written"):
        make_folder(str(paths[0]))
    paths[2].unlink()
    paths[2].mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_files(report, folder)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1000, "1,000 B"),
        (2**20, "1 MiB"),
        (40 * 2**30, "40 GiB"),
        (1_700_000, "1.62 MiB"),
        (1023.6 * 2**30, "1,024 GiB"),
        (3 * 2**60, "3,072 PiB"),
    ],
)
def test_sizes_have_fitting_units(num_bytes, text):
    """Whole numbers stay whole."""
    assert text == size_text(num_bytes)


def test_figures_that_are_missing_are_a_dash():
    """In numbers and in times."""
    assert ("-", "-", "1,234", "lru") == (
        plain_text(None),
        seconds_text(None),
        plain_text(1234),
        plain_text("lru"),
    )


def test_the_docs_explain_every_column():
    """By the name that the files use."""
    text = DOCS.read_text(encoding="utf-8")
    assert [] == [c.name for c in COLUMNS if f"`{c.name}`" not in text]
