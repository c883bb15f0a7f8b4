"""The tiny models on disk: made once per recipe, kept in the user's cache folder."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvcellar.demo.recipes import RECIPES, TinyRecipe
from kvcellar.errors import CellarError, ConfigError


def cache_folder() -> Path:
    """Where kvcellar keeps what it can make again.

    Source: XDG base directory specification, ``XDG_CACHE_HOME``.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
    return base / "kvcellar"


def ensure_tiny(name: str) -> Path:
    """The folder of a tiny model, which is made first if it is not there.

    The model is built beside its place and moved there in one step, so that two
    processes may do this at once and a killed one leaves nothing half made.

    Raises:
        ConfigError: the name is unknown, or the cache folder cannot be written.
        CellarError: building failed.
    """
    if name not in RECIPES:
        raise ConfigError(f"tiny={name!r} is unknown; use one of {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    place = cache_folder() / f"{name}-{recipe.digest()}"
    if not place.is_dir():
        with _folder_beside(place) as building:
            _build(recipe, building)
            _move(building, place)
    return place


@contextlib.contextmanager
def _folder_beside(place: Path) -> Iterator[Path]:
    """An empty folder on the same file system, removed at the end if still there."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".building-", dir=place.parent))
    except OSError as error:
        raise ConfigError(
            f"the cache folder {place.parent} cannot be written ({error.strerror}); "
            "set XDG_CACHE_HOME to a folder that can"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(recipe: TinyRecipe, folder: Path) -> None:
    """Build in a process of its own: it needs torch, which this one must not load."""
    command = [sys.executable, "-m", "kvcellar.demo.tiny_build", recipe.name]
    done = subprocess.run(
        [*command, str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        last_lines = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise CellarError(
            f"building the tiny model {recipe.name} failed:\n{last_lines}"
        )


def _move(building: Path, place: Path) -> None:
    try:
        building.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was first, with the same bytes
            raise
