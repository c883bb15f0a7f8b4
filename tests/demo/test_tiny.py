import dataclasses
import subprocess
from pathlib import Path

import pytest

import kvcellar
from kvcellar.demo import tiny
from kvcellar.demo.recipes import RECIPES
from kvcellar.demo.tiny import cache_folder, ensure_tiny
from kvcellar.errors import CellarError, ConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a builder that imports the kvcellar under test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(kvcellar.__file__).parents[1]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kvcellar"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replace the builder; the list holds the folders it was asked to fill."""
    folders: list[Path] = []

    def build(_: object, folder: Path) -> None:
        folders.append(folder)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(tiny, "_build", build)
    return folders


def test_model_is_made_once(builds: list[Path], cache: Path):
    """The second request finds what the first made, and nothing else is left."""
    place = ensure_tiny("gemma3")
    assert ensure_tiny("gemma3") == place
    assert len(builds) == 1
    assert list(cache.iterdir()) == [place]
    assert (place / "config.json").is_file()


def test_failed_build_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A build that fails is told, and the next one starts from nothing."""

    def fail(*_: object) -> None:
        raise CellarError("no")

    monkeypatch.setattr(tiny, "_build", fail)
    with pytest.raises(CellarError, match="no"):
        ensure_tiny("llama")
    assert list(cache.iterdir()) == []


def test_loser_of_a_race_uses_the_winners_model(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """If another process was first, its model is used and ours is removed."""

    def build_too_late(recipe: object, folder: Path) -> None:
        (folder / "config.json").write_text("ours")
        place = cache / f"llama-{RECIPES['llama'].digest()}"
        place.mkdir()
        (place / "config.json").write_text("theirs")

    monkeypatch.setattr(tiny, "_build", build_too_late)
    place = ensure_tiny("llama")
    assert (place / "config.json").read_text() == "theirs"
    assert list(cache.iterdir()) == [place]


def test_builder_failure_shows_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
):
    """An error in the builder's process becomes one of ours, with its message."""
    script = "import sys; sys.exit('there is no transformers')"
    real_run = subprocess.run

    def run(command: list[str], **options: object) -> object:
        return real_run([command[0], "-c", script], **options)

    monkeypatch.setattr(tiny.subprocess, "run", run)
    with pytest.raises(CellarError, match="there is no transformers"):
        ensure_tiny("llama4")


def test_unknown_name_lists_the_known_ones():
    """A name without a recipe is refused."""
    with pytest.raises(ConfigError, match="gemma3, llama4, llama"):
        ensure_tiny("gemma4")


def test_unwritable_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache folder that cannot be made is named, with what to set."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        ensure_tiny("llama")


def test_relative_cache_settings_are_ignored(monkeypatch: pytest.MonkeyPatch):
    """As the specification has it, XDG_CACHE_HOME counts only if it is absolute."""
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache_folder() == Path.home() / ".cache" / "kvcellar"


def test_digest_follows_everything_in_a_recipe():
    """Any change to a recipe changes where its model lies."""
    recipe = RECIPES["gemma3"]
    changed = [
        dataclasses.replace(recipe, seed=1),
        dataclasses.replace(recipe, config={**recipe.config, "sliding_window": 128}),
        dataclasses.replace(recipe, config_class="LlamaConfig"),
        *(RECIPES[name] for name in ("llama", "llama4")),
    ]
    assert len({recipe.digest(), *(other.digest() for other in changed)}) == 6
    assert recipe.digest() == dataclasses.replace(recipe).digest()


@pytest.mark.engine
@pytest.mark.parametrize("name", RECIPES)
def test_real_build_is_a_hybrid_and_seeded(name: str):
    """The built model has the recipe's layers, and the same bytes every time."""
    first = ensure_tiny(name)
    weights = (first / "model.safetensors").read_bytes()
    second = first.with_name("again")
    second.mkdir()
    tiny._build(RECIPES[name], second)
    assert (second / "model.safetensors").read_bytes() == weights
    assert (second / "config.json").read_text() == (first / "config.json").read_text()
    assert len(weights) < 64 * 2**20
