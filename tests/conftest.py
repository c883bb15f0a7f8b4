"""Rules for all tests: no network, no deadlines, engine and trace tests by marker."""

import gc
import importlib.util
import os
import pathlib
import tempfile

import hypothesis
import pytest

ENGINE_TIMEOUT_SECONDS = 1200  # reached only by what hangs, on slow machines too

# Before any test imports the libraries that read them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

# Shared machines stall for long moments, so no example has a deadline. In CI the same
# examples are drawn every time: a change fails because of itself, never by luck.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(config, items):
    """Give engine tests their time, and skip what this machine has no means for."""
    has_engine = importlib.util.find_spec("vllm") is not None
    has_traces = "KVCELLAR_TRACES" in os.environ
    for item in items:
        if item.get_closest_marker("engine"):
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(ENGINE_TIMEOUT_SECONDS))
            if not has_engine:
                item.add_marker(pytest.mark.skip("vllm is not installed"))
        if item.get_closest_marker("traces") and not has_traces:
            item.add_marker(pytest.mark.skip("KVCELLAR_TRACES is not set"))
    if hasattr(config, "workerinput"):
        put_engines_first(items)


def pytest_collection_finish():
    """Leave what stays for good, items and engine, out of every search for cycles.

    One over all of it takes half a second, and whoever measures asks for many.
    """
    gc.collect()
    gc.freeze()


def put_engines_first(items):
    """Files that start engines take longest: one at the end would be waited for alone.

    Only for parallel runs, whose unit is the file. Files stay whole and in order.
    """
    with_engine = {item.path for item in items if item.get_closest_marker("engine")}
    items.sort(key=lambda item: item.path not in with_engine)


@pytest.fixture
def short_folder():
    """A new folder whose path leaves room for a socket's name; at most 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="kvc-", dir="/tmp") as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="session")
def traces_dir():
    """Folder of recorded traces; only for tests marked ``traces``."""
    return pathlib.Path(os.environ["KVCELLAR_TRACES"])
