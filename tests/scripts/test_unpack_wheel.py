"""Of a wheel, what Python reads is unpacked and what was compiled is not."""

import importlib.util
import pathlib
import zipfile

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
FILES = {
    "vllm/__init__.py": True,
    "vllm/_C.abi3.so": False,
    "vllm/vllm-rs": False,
    "vllm/third_party/x/y.hpp": False,
    "vllm/model_executor/configs/a,b.json": True,
    "vllm-0.33.0.dist-info/METADATA": True,
}


@pytest.fixture(scope="module")
def unpack_wheel():
    path = SCRIPTS / "unpack_wheel.py"
    spec = importlib.util.spec_from_file_location("unpack_wheel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_what_is_wanted_arrives(unpack_wheel, tmp_path):
    """Files keep their paths; a folder that exists is filled up."""
    wheel, folder = tmp_path / "a.whl", tmp_path / "site"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in FILES:
            archive.writestr(name, name)
    folder.mkdir()
    unpack_wheel.main(wheel, folder)
    arrived = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {name for name, is_wanted in FILES.items() if is_wanted} == arrived
