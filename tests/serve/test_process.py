import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kvcellar
from kvcellar.serve import process
from kvcellar.serve.group import end_group, group_members, wait_until_empty
from kvcellar.serve.process import ServerProcess

# A server with one child; both live until they are ended, and both say so first.
_FAMILY = """
import subprocess, sys, signal
child = "import signal; {child}; print('ready', flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-c", child])
signal.pause()
"""
_STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch):
    """Let the processes that these tests start import the kvcellar under test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(kvcellar.__file__).parents[1]))


def family(child: str = "pass") -> list[str]:
    return [sys.executable, "-c", _FAMILY.replace("{child}", child)]


def wait_for_line(path: Path) -> None:
    """Wait for the family's grown-up child; the test's own timeout ends the wait."""
    while not path.read_text().endswith("ready\n"):
        os.sched_yield()


@pytest.mark.parametrize("child", ["pass", _STUBBORN])
def test_close_ends_children_too(
    child: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """After the block the group is empty, even if a child ignores SIGTERM."""
    monkeypatch.setattr(process, "GRACE_SECONDS", 1.0)
    log = tmp_path / "log"
    with log.open("wb") as output, ServerProcess(family(child), None, output) as server:
        wait_for_line(log)
        assert len(group_members(server.group_id)) == 2
    assert group_members(server.group_id) == []
    assert server.poll() == -signal.SIGTERM
    server.close()


def test_orphans_of_a_crashed_server_are_ended(tmp_path: Path):
    """A server that is killed leaves a child behind, which close() ends."""
    log = tmp_path / "log"
    with log.open("wb") as output, ServerProcess(family(), None, output) as server:
        wait_for_line(log)
        os.kill(server.group_id, signal.SIGKILL)
        assert server.wait(10) == -signal.SIGKILL
        assert len(group_members(server.group_id)) == 1
    assert group_members(server.group_id) == []


def test_wait_returns_none_while_the_server_runs(tmp_path: Path):
    """A wait that times out is no error, and kill ends the whole group."""
    log = tmp_path / "log"
    with log.open("wb") as output, ServerProcess(family(), None, output) as server:
        wait_for_line(log)
        assert server.wait(0) is None
        server.kill()
        assert server.wait(10) == -signal.SIGKILL
        assert wait_until_empty(server.group_id, 10)


def test_exit_status_is_the_servers():
    """A server that ends by itself keeps its exit status."""
    with ServerProcess([sys.executable, "-c", "raise SystemExit(3)"]) as server:
        assert server.wait(30) == 3


def test_watchdog_ends_the_server_of_a_killed_starter(tmp_path: Path):
    """SIGKILL of the process that started a server ends the server's whole group."""
    log = tmp_path / "log"
    log.touch()
    script = (
        "import sys, signal\n"
        "from kvcellar.serve.process import ServerProcess\n"
        f"output = open({str(log)!r}, 'wb')\n"
        f"server = ServerProcess({family()!r}, None, output)\n"
        "print(server.group_id, flush=True)\n"
        "signal.pause()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        group_id = int(starter.stdout.readline())
        wait_for_line(log)
        assert len(group_members(group_id)) == 2
        starter.kill()
    assert wait_until_empty(group_id, 30)


def test_watchdog_leaves_with_the_starter(tmp_path: Path):
    """A closed server leaves no watchdog behind, and it did not end anything."""
    with ServerProcess([sys.executable, "-c", ""]) as server:
        server.wait(30)
        watching = server._watchdog
        assert watching.poll() is None
    assert watching.returncode == 0


def test_group_members_reads_names_with_parentheses(tmp_path: Path):
    """A process name may hold spaces and parentheses; the dead do not count."""
    for pid, stat in {
        "10": "10 (a) b) R 1 77 77 0",
        "11": "11 (x) Z 1 77 77 0",
        "12": "12 (y) S 1 78 78 0",
        "self": "1 (z) S 1 77 77 0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(stat)
    (tmp_path / "13").mkdir()
    assert group_members(77, tmp_path) == [10]


def test_ending_an_empty_group_is_no_error():
    """A group that has gone is what ending it wants."""
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as child:
        child.wait()
    end_group(child.pid, 0)
    assert wait_until_empty(child.pid, 0)
