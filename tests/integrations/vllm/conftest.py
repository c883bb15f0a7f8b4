"""All tests here are the contract with vLLM, but those that start an engine."""

import pathlib

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark them, so that they run with other versions too: ``make check-vllm``."""
    for item in items:
        if HERE in item.path.parents and not item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.contract)
