"""The grid on one process or several: same order, same bytes, honest progress."""

import pytest
import replay_grids
from replay_grids import MIB, conversations, report_of, request_of, trace_file

from kvcellar.errors import ConfigError
from kvcellar.replay.grid import GridAxes
from kvcellar.replay.grid_request import ModelChoice, TraceChoice, run_request
from kvcellar.replay.progress import GridProgress
from kvcellar.replay.report.files import csv_of, json_of
from kvcellar.replay.report.page import page_of
from kvcellar.replay.report.text import text_of
from kvcellar.replay.server import ServerLimits

AXES = GridAxes((60 * MIB,), (0, 20 * MIB, 60 * MIB), modes=("lazy", "eager"))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small trace, written once."""
    return trace_file(tmp_path_factory.mktemp("trace"))


def test_two_processes_give_the_bytes_of_one(path):
    """In all four outputs, whichever cell ends first."""
    one = report_of(path, axes=AXES)
    two = report_of(path, axes=AXES, num_processes=2)
    for output in (csv_of, json_of, page_of, text_of):
        assert output(one) == output(two)


def test_the_same_run_gives_the_same_bytes(path):
    """Nothing of the clock or of chance gets into the files."""
    first, second = (report_of(path) for _ in range(2))
    assert page_of(first) == page_of(second)
    assert json_of(first) == json_of(second)


def test_progress_reaches_every_request(path):
    """Counts never fall, and end with all requests and all cells."""
    seen = []

    def start(num_cells, num_requests):
        seen.append((num_cells, num_requests))
        return lambda *counts: seen.append(counts)

    report = run_request(request_of(path, axes=AXES), start)
    (num_cells, num_requests), *counts = seen
    assert (5, 150) == (num_cells, num_requests)
    assert counts == sorted(counts)
    assert (num_cells * num_requests, num_cells) == counts[-1]
    assert num_cells == len(report.rows)


class Recorder:
    def __init__(self):
        self.lines = []

    def stage(self, name):
        self.lines.append(name)

    def detail(self, text):
        self.lines.append(text)


def test_the_bar_shows_share_and_time_left():
    """Half done after ten seconds leaves ten; requests left out do not hold it up."""
    recorder, times = Recorder(), iter([100.0, 110.0, 111.0])
    show = GridProgress(recorder, 2, 1000, clock=lambda: next(times))
    show(1000, 0)
    show(1200, 2)
    assert "replaying 1,000 requests in 2 configurations" == recorder.lines[0]
    assert recorder.lines[1].endswith("50%, 0 done, 0:10 left")
    assert recorder.lines[2].endswith("100%, 2 done")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_processes": 0}, "processes=0"),
        ({"limits": ServerLimits(max_num_seqs=0)}, "max_num_seqs=0"),
        ({"limits": ServerLimits(step_tokens=-1)}, "step_tokens=-1"),
        ({"model": ModelChoice("no-such-model")}, "no-such-model"),
    ],
)
def test_wrong_numbers_are_refused(changes, words, path):
    """Before the trace is played."""
    with pytest.raises(ConfigError, match=words):
        report_of(path, **changes)


def test_a_trace_without_requests_is_refused(tmp_path):
    """There is nothing to say about it."""
    empty = trace_file(tmp_path, num_requests=0)
    with pytest.raises(ConfigError, match="holds no request"):
        report_of(empty)


def test_limit_and_speed_reach_the_replay(path):
    """Fewer requests, and a trace that lasts shorter."""
    whole = report_of(path).facts["trace"]
    cut = report_of(path, trace=TraceChoice(path, limit=40, speed=2.0)).facts["trace"]
    assert (150, 40) == (whole["num_requests"], cut["num_requests"])
    requests = conversations().requests
    assert cut["span_seconds"] == pytest.approx(
        (requests[39].arrival_seconds - requests[0].arrival_seconds) / 2, abs=1e-3
    )
    assert replay_grids.conversations(3).block_tokens == whole["block_tokens"]
