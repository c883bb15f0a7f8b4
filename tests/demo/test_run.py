import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from fake_demo_engine import FakeEngine

from kvcellar.demo import engine, run
from kvcellar.demo.engine import running_engine
from kvcellar.demo.progress import Progress
from kvcellar.demo.run import DemoSettings, run_demo
from kvcellar.demo.table import table_of
from kvcellar.demo.target import Target
from kvcellar.errors import CellarError, ConfigError
from kvcellar.serve.address import free_port
from kvcellar.serve.command import ServeSettings

_SERVER = """
import http.server, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("the first line", flush=True)
http.server.HTTPServer(("127.0.0.1", {port}), Health).serve_forever()
"""


def demo_settings(**changes: object) -> DemoSettings:
    given = {
        "tiny_name": "gemma3",
        "model_path": None,
        "host_memory_bytes": 2**30,
        "mode": "eager",
        "num_conversations": 6,
        "seed": 0,
        "keep_logs": False,
    }
    return DemoSettings(**{**given, **changes})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ServeSettings]:
    """Replace the servers by fakes; the list holds what was started."""
    asked: list[ServeSettings] = []
    made = Target(tmp_path, "fake", 32, 100)

    @contextlib.contextmanager
    def fake(settings: ServeSettings, log: Path, on_wait) -> Iterator[FakeEngine]:
        log.write_text("a log")
        on_wait(1.0)
        asked.append(settings)
        yield FakeEngine(has_host=settings.host_memory_bytes is not None)

    monkeypatch.setattr(run, "running_engine", fake)
    monkeypatch.setattr(run, "tiny_target", lambda _: made)
    monkeypatch.setattr(run.tempfile, "tempdir", str(tmp_path))
    return asked


def test_demo_plays_both_servers(started, tmp_path, capsys):
    """First plain vLLM, then the same with kvcellar; nothing is left behind."""
    report = run_demo(demo_settings())
    assert [s.host_memory_bytes for s in started] == [None, 2**30]
    assert report.problems == ()
    assert list(tmp_path.iterdir()) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "kvcellar: with kvcellar: returning after eviction\n" in captured.err


def test_mode_reaches_the_server_and_the_report(started):
    """What --mode says is what the server is started with and the report names."""
    report = run_demo(demo_settings(mode="lazy"))
    assert started[1].mode == "lazy"
    assert report.setting.mode == "lazy"


def test_ranks_reach_both_servers_and_the_report(started):
    """--tensor-parallel is what both servers are started with, and is reported."""
    report = run_demo(demo_settings(num_ranks=2))
    for settings in started:
        assert ("--tensor-parallel-size", "2") in pairwise(settings.vllm_arguments)
    assert report.setting.num_ranks == 2
    assert "on 2 ranks\n" in table_of(report)


def test_no_ranks_are_refused():
    """A model needs one rank at least."""
    with pytest.raises(ConfigError, match="tensor_parallel=0 is no number of ranks"):
        run_demo(demo_settings(num_ranks=0))


@pytest.mark.parametrize(
    ("cpus", "bound"),
    [({0, 1}, "0|1"), ({1, 3, 5, 9, 11}, "1,5,11|3,9"), ({7}, "7|7")],
)
def test_ranks_share_the_processors(cpus, bound, monkeypatch):
    """Each rank gets processors of its own, if there are enough for that."""
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda _: cpus)
    monkeypatch.delenv(engine.BOUND_CPUS, raising=False)
    settings = ServeSettings("m", None, vllm_arguments=("-tp", "2"))
    environment = engine._environment(settings, Path("/x"))
    assert environment[engine.BOUND_CPUS] == bound


def test_one_rank_is_bound_by_vllm(serve_settings, monkeypatch):
    """Without ranks vLLM finds the processors by itself."""
    monkeypatch.delenv(engine.BOUND_CPUS, raising=False)
    assert engine.BOUND_CPUS not in engine._environment(serve_settings, Path("/x"))


def test_logs_are_kept_on_request(started, tmp_path):
    """--keep-logs leaves both servers' logs."""
    run_demo(demo_settings(keep_logs=True))
    (folder,) = tmp_path.iterdir()
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["with-kvcellar.log", "without-kvcellar.log"]


def test_too_few_conversations_are_refused():
    """Conversations that all fit on the device prove nothing."""
    with pytest.raises(ConfigError, match="conversations=5 fit on the device"):
        run_demo(demo_settings(num_conversations=5))


def test_missing_model_is_refused():
    """A path without a model is refused before anything is started."""
    with pytest.raises(ConfigError, match="does not exist"):
        run_demo(demo_settings(tiny_name=None, model_path="/no/such/model"))


def test_sigterm_ends_the_demo_like_ctrl_c(started, monkeypatch, tmp_path):
    """SIGTERM unwinds the demo, so that its server ends; old handlers come back."""

    def terminate(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(run, "play", terminate)
    with pytest.raises(KeyboardInterrupt):
        run_demo(demo_settings())
    assert signal.getsignal(signal.SIGTERM) == before
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def serve_settings(monkeypatch: pytest.MonkeyPatch) -> ServeSettings:
    monkeypatch.setattr(engine, "check_settings", lambda _: None)
    arguments = ("--host", "127.0.0.1", "--port", str(free_port()))
    return ServeSettings("m", None, vllm_arguments=arguments)


def use_script(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    command = [sys.executable, "-c", script]
    monkeypatch.setattr(engine, "server_command", lambda _: command)


def test_server_that_does_not_start_shows_its_last_words(
    serve_settings, monkeypatch, tmp_path
):
    """The error holds the exit status and the end of the server's log."""
    use_script(monkeypatch, "import sys; print('a'); sys.exit('out of luck')")
    running = running_engine(serve_settings, tmp_path / "log", lambda _: None)
    with (
        pytest.raises(CellarError, match=r"(?s)exit status 1.*out of luck"),
        running,
    ):
        pass


def test_server_that_dies_later_shows_its_last_words(
    serve_settings, monkeypatch, tmp_path
):
    """A connection lost in the middle becomes one error with the log's end."""
    port = serve_settings.vllm_arguments[-1]
    use_script(monkeypatch, _SERVER.format(port=port))
    running = running_engine(serve_settings, tmp_path / "log", lambda _: None)
    with (
        pytest.raises(CellarError, match=r"(?s)did not answer.*the first line"),
        running,
    ):
        raise ConnectionResetError


def test_first_error_in_the_log_is_shown(serve_settings, monkeypatch, tmp_path):
    """The root cause comes before a long tail, and is shown beside it."""
    script = (
        "import sys\n"
        "print('WARNING 1 AnError: x')\n"
        "print('MyError: the cause')\n"
        "for i in range(99): print(i)\n"
    )
    use_script(monkeypatch, f"{script}sys.exit('OtherError: the end')")
    running = running_engine(serve_settings, tmp_path / "log", lambda _: None)
    with (
        pytest.raises(CellarError, match=r"(?s)error:\n  MyError: the cause\n.*97\n"),
        running,
    ):
        pass


def test_stages_follow_each_other_once(started, capsys):
    """No stage is shown twice for a server, whatever kinds alternate within it."""
    run_demo(demo_settings())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines))


def test_server_that_never_answers_is_given_up(serve_settings, monkeypatch, tmp_path):
    """After the time limit a start is a failure, and the server is ended."""
    monkeypatch.setattr(engine, "_READY_TIMEOUT_SECONDS", 0.0)
    use_script(monkeypatch, "import signal; signal.pause()")
    running = running_engine(serve_settings, tmp_path / "log", lambda _: None)
    with pytest.raises(CellarError, match="it still runs"), running:
        pass


@pytest.mark.parametrize(("length", "is_used"), [(60, True), (70, True), (71, False)])
def test_long_temporary_folders_are_left_to_the_server(
    length: int, is_used: bool, serve_settings
):
    """Socket paths are 37 characters longer than their folder and at most 107 long."""
    folder = Path("/" + "x" * (length - 1))
    environment = engine._environment(serve_settings, folder)
    assert (environment.get("TMPDIR") == str(folder)) == is_used


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_plain_lines_in_a_file():
    """Each stage is one line, once, and details are left out."""
    stream = io.StringIO()
    with Progress(stream) as progress:
        for stage in ("one", "one", "two"):
            progress.stage(stage)
            progress.detail("(1 of 2)")
    assert stream.getvalue() == "kvcellar: one\nkvcellar: two\n"


def test_progress_is_one_line_on_a_terminal():
    """A terminal sees one line that is rewritten and cleared at the end."""
    stream = Terminal()
    with Progress(stream) as progress:
        progress.stage("one")
        progress.detail("(1 of 2)")
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("kvcellar: one (1 of 2)\r\x1b[K")
