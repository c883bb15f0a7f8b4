"""Each way a machine can be unfit is told in one sentence that names it."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
GIB = 1024**3
AVX2_CPU = (
    "processor\t: 0\nmodel name\t: some CPU\nflags\t\t: fpu sse4_2 avx avx2 fma\n"
)


@pytest.fixture(scope="module")
def preflight():
    spec = importlib.util.spec_from_file_location("preflight", SCRIPTS / "preflight.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FreeSpace:
    def __init__(self, free_bytes):
        self.free = free_bytes


def is_one_sentence(text):
    return "\n" not in text and not text.endswith(".")


def test_linux_on_x86_64_is_fit(preflight):
    """Linux on x86-64 raises no complaint."""
    assert preflight.check_platform("Linux", "x86_64") is None


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Linux", "")]
)
def test_other_platforms_are_named(preflight, system, machine):
    """The complaint says what is needed and what this machine is."""
    problem = preflight.check_platform(system, machine)
    assert "Linux on x86-64" in problem
    assert f"{system} on {machine}" in problem
    assert is_one_sentence(problem)


def test_avx2_among_the_flags_is_fit(preflight):
    """A processor whose flags list avx2 raises no complaint."""
    assert preflight.check_cpu(AVX2_CPU) is None


@pytest.mark.parametrize(
    "cpuinfo",
    [
        AVX2_CPU.replace(" avx2", ""),
        AVX2_CPU.replace(" avx2", " avx2000"),
        "model name\t: avx2 in its name only\n",
        "",
    ],
)
def test_processors_without_avx2_are_refused(preflight, cpuinfo):
    """Only the flag itself counts, not a longer flag or a model name."""
    problem = preflight.check_cpu(cpuinfo)
    assert "AVX2" in problem
    assert is_one_sentence(problem)


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 13, 2), (4, 0, 0)])
def test_new_pythons_are_fit(preflight, version):
    """3.11 and everything after it raises no complaint."""
    assert preflight.check_python(version) is None


@pytest.mark.parametrize("version", [(3, 10, 14), (2, 7, 18)])
def test_old_pythons_are_told_their_version(preflight, version):
    """The complaint names the version that was found and how to name another."""
    problem = preflight.check_python(version)
    assert f"{version[0]}.{version[1]}" in problem
    assert "PYTHON=" in problem
    assert is_one_sentence(problem)


def test_missing_ensurepip_names_the_package_that_has_it(preflight):
    """Without ensurepip the complaint says what to install; with it there is none."""
    assert "python3-venv" in preflight.check_venv_module(has_ensurepip=False)
    assert preflight.check_venv_module(has_ensurepip=True) is None


def test_disk_space_is_compared_with_the_need(preflight):
    """Exactly enough is enough; one byte less is refused, with both sizes."""
    assert preflight.check_disk(6 * GIB, 6 * GIB, "/data") is None
    problem = preflight.check_disk(6 * GIB - 1, 6 * GIB, "/data")
    assert "6 GiB" in problem
    assert "/data" in problem
    assert is_one_sentence(problem)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\n"
            "ERROR: No matching distribution found for torch==2.13.0",
            "could not be reached",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0",
            "offers no torch==2.13.0",
        ),
        ("ERROR: [Errno 28] No space left on device", "ran full"),
        ("ERROR: something else", "could not install"),
    ],
)
def test_pip_failures_become_one_sentence(preflight, log, reason):
    """The sentence names the cause, and where pip's own words are kept."""
    sentence = preflight.explain_pip_failure(log, ".venv/setup.log")
    assert reason in sentence
    assert ".venv/setup.log" in sentence
    assert is_one_sentence(sentence)


def test_the_problem_goes_to_stderr_with_exit_status_1(preflight, tmp_path, capsys):
    """Standard output stays empty, so that a caller's JSON is not spoilt."""
    log = tmp_path / "setup.log"
    log.write_text("ERROR: something else")
    assert preflight.main(["--explain-pip", str(log)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("kvcellar: ")
    assert output.err.count("\n") == 1


def test_this_machine_passes_when_it_has_the_space(preflight, tmp_path, monkeypatch):
    """The machine that runs the tests is fit, or is refused for its disk alone."""
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: FreeSpace(7 * GIB))
    assert preflight.main([str(tmp_path / ".venv")]) == 0
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: FreeSpace(5 * GIB))
    assert preflight.main([str(tmp_path / ".venv")]) == 1


def test_an_existing_venv_needs_little_space(preflight, tmp_path, monkeypatch):
    """Bringing .venv up to date is allowed where creating it would not be."""
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: FreeSpace(2 * GIB))
    assert preflight.main([str(tmp_path / ".venv")]) == 0


def test_the_script_runs_in_an_isolated_interpreter(tmp_path):
    """It is plain standard library: no package of ours or of others is needed."""
    log = tmp_path / "setup.log"
    log.write_text("ERROR: something else")
    result = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPTS / "preflight.py", "--explain-pip", log],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert "could not install" in result.stderr
