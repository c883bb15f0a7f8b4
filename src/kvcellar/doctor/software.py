"""Installed packages and the environment, without importing any of them."""

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

_PACKAGES = ("vllm", "torch", "numpy")


@dataclass(frozen=True, slots=True)
class Software:
    """What is installed for this Python.

    Attributes:
        python: this interpreter's version.
        versions: version of each package found; empty text where it is there but
            tells none.
        environment: environment variables, which a server would inherit.
    """

    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def read_software() -> Software:
    """Look at this process's own Python and environment."""
    found = {
        name: _version_of(name)
        for name in _PACKAGES
        if importlib.util.find_spec(name) is not None
    }
    return Software(platform.python_version(), found, dict(os.environ))


def _version_of(package: str) -> str:
    """The version by a distribution's metadata.

    CPU builds of vLLM come under another distribution name, so the name is looked up
    where the package's own is unknown.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(package, ())
        return importlib.metadata.version(names[0]) if names else ""
