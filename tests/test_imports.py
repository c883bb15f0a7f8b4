"""What may be imported without the engine: fences that hold in a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

import kvcellar

IMPORT_ALL_WITHOUT_ENGINE = """
import importlib, pkgutil, sys
blocked = {"torch", "vllm", "transformers"}

class Fence:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is blocked by this test")

sys.meta_path.insert(0, Fence())
import kvcellar
needs_engine = tuple(f"kvcellar.{p}" for p in ("device", "integrations", "testing"))
names = [
    module.name
    for module in pkgutil.walk_packages(
        kvcellar.__path__, "kvcellar.", onerror=lambda name: None
    )
    if not module.name.startswith(needs_engine)
]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""

MODULES_LOADED_BY_HELP = """
import contextlib, io, sys
from kvcellar.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        status = main(["--help"])
    except SystemExit as stop:
        status = stop.code
assert not status, status
assert "kvcellar" in out.getvalue()
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def run_python(code):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_everything_but_device_and_integrations_imports_without_torch_and_vllm():
    """Tools, core and tiers import where neither torch nor vllm can be imported."""
    assert int(run_python(IMPORT_ALL_WITHOUT_ENGINE)) > 20


@pytest.mark.parametrize("heavy", ["torch", "vllm", "transformers", "numba"])
def test_help_loads_no_heavy_package(heavy):
    """``kvcellar --help`` answers without loading the packages that take seconds."""
    assert heavy not in run_python(MODULES_LOADED_BY_HELP).split()


def test_the_package_itself_loads_only_the_standard_library():
    """``import kvcellar`` alone pulls in no third-party package."""
    code = "import sys, kvcellar; print(*{n.partition('.')[0] for n in sys.modules})"
    loaded = set(run_python(code).split())
    assert "numpy" not in loaded
    assert not loaded & {"torch", "vllm", "transformers"}


def test_only_layout_and_attention_name_a_kind() -> None:
    """All else asks ``needed()``; the engine's names are translated in one file."""
    package = Path(kvcellar.__file__).parent
    # The last two build layouts for toy models, as a layout test would.
    translators = {
        "integrations/vllm/translate.py",
        "testing/compressed_model.py",
        "testing/gpu/rig.py",
    }
    allowed = {"attention", "layout", *translators}
    naming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "AttentionKind" in path.read_text(encoding="utf-8")
    }
    outside = {
        name
        for name in naming
        if name not in allowed and name.partition("/")[0] not in allowed
    }
    assert set() == outside
