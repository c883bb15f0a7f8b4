"""The grid: every combination of what the user names, in a fixed order."""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvcellar.config import Settings, parse_bytes, settings_from_extra_config
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry
from kvcellar.layout.models import ModelLayout
from kvcellar.replay.coarse import coarse_layout, unit_tokens
from kvcellar.replay.configuration import Configuration
from kvcellar.replay.costs import CostModel
from kvcellar.replay.grid_cell import GridCell, no_host_settings
from kvcellar.replay.grid_choice import OURS, SYSTEMS, Choice
from kvcellar.replay.server import ServerLimits

_NOTHING = re.compile(r"0+(\.0+)?\s*([kmgt]i?)?b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GridAxes:
    """What is varied.

    Attributes:
        device_memory_bytes: KV cache memory of one GPU; 0 keeps nothing.
        host_memory_bytes: of the whole server; 0 for none.
        systems: kvcellar and vLLM's own connectors. What follows is kvcellar's.
        placements: (None,) leaves it to the settings' default.
        admissions: the same.
    """

    device_memory_bytes: tuple[int, ...]
    host_memory_bytes: tuple[int, ...]
    systems: tuple[str, ...] = (OURS,)
    policies: tuple[str, ...] = ("lru",)
    placements: tuple[str | None, ...] = (None,)
    modes: tuple[str, ...] = ("eager",)
    admissions: tuple[str | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class GridModel:
    """What stays the same in all cells.

    Attributes:
        host_layout: what host memory keeps, under the rules that serve.
        block_tokens: tokens per prefix id of the trace.
    """

    model: ModelLayout
    host_layout: CacheLayout
    block_tokens: int
    costs: CostModel
    limits: ServerLimits

    @property
    def unit_tokens(self) -> int:
        """Distance of the points at which the replay can resume a prompt."""
        return unit_tokens(self.host_layout, self.block_tokens)


def words_of(text: str, key: str) -> tuple[str, ...]:
    """Read ``"a,b"``; what is named twice counts once.

    Raises:
        ConfigError: nothing between two commas.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{key}={text!r} has an empty entry; write a or a,b,c")
    return tuple(dict.fromkeys(words))


def sizes_of(text: str, key: str) -> tuple[int, ...]:
    """Read ``"0,16GiB"``: bytes, of which 0 means none of this memory.

    Raises:
        ConfigError: an entry is not a size.
    """
    sizes = [
        0 if _NOTHING.fullmatch(word) else parse_bytes(word, key)
        for word in words_of(text, key)
    ]
    return tuple(dict.fromkeys(sizes))


def serving_layout(model: ModelLayout) -> CacheLayout:
    """What kvcellar keeps in host memory: all, or less by its dead-state rule."""
    try:
        return model.without_dead_state.layout
    except IncompatibleError:  # then serving keeps the states, too
        return model.layout


def make_cells(axes: GridAxes, fixed: GridModel) -> tuple[GridCell, ...]:
    """All cells: by device memory, host memory, system, and kvcellar's choices.

    Without host memory there is one cell for each size of the device.

    Raises:
        ConfigError: a setting is refused, or some memory is too small for the model.
    """
    _check_choices(axes)
    cells = []
    for device in axes.device_memory_bytes:
        num_rows = _num_rows(device, fixed.model)
        for host in axes.host_memory_bytes:
            for choice in _choices(axes) if host else [Choice()]:
                configuration = Configuration(
                    fixed.model.layout,
                    num_rows,
                    _settings(host, choice, fixed),
                    fixed.costs,
                    fixed.limits,
                    host_layout=fixed.host_layout,
                    system=choice.system or OURS,
                    row_bytes=fixed.model.row_bytes,
                )
                cells.append(GridCell(device, host, choice, configuration))
    return tuple(cells)


def _choices(axes: GridAxes) -> Iterator[Choice]:
    """All ways to run host memory; vLLM's connectors have no settings to vary."""
    for system in axes.systems:
        if system == OURS:
            yield from _own_choices(axes)
        else:
            yield Choice(system)


def _own_choices(axes: GridAxes) -> Iterator[Choice]:
    named = itertools.product(
        axes.policies, axes.placements, axes.admissions, axes.modes
    )
    return itertools.starmap(functools.partial(Choice, OURS), named)


def _check_choices(axes: GridAxes) -> None:
    """Refuse what cannot be, also where it is not used."""
    for system in axes.systems:
        if system not in SYSTEMS:
            raise ConfigError(
                f"system={system!r} is unknown; use some of {', '.join(SYSTEMS)}"
            )
    if "lazy" in axes.modes and 0 in axes.device_memory_bytes:
        raise ConfigError(
            "mode=lazy stores what the device is about to lose, and device_memory=0 "
            "keeps nothing to lose; leave one of them out"
        )
    for choice in _own_choices(axes):
        settings_from_extra_config(choice.extra_config())


def _num_rows(device_bytes: int, model: ModelLayout) -> int | None:
    if device_bytes == 0:
        return None
    num_rows = device_bytes // model.row_bytes
    if num_rows == 0:
        raise ConfigError(
            f"device_memory={device_bytes} holds no block of {model.name}, which "
            f"takes {model.row_bytes} bytes; give more, or 0 for a device that keeps "
            "nothing"
        )
    return num_rows


def _settings(host_bytes: int, choice: Choice, fixed: GridModel) -> Settings:
    """Settings of one rank, checked by the same table as a server's."""
    if host_bytes == 0:
        return no_host_settings(fixed.host_layout, fixed.block_tokens)
    rank_bytes = host_bytes // fixed.model.options.tensor_parallel
    if choice.is_native:
        return _native_settings(rank_bytes, fixed.model)
    extra = {"host_memory": rank_bytes, **choice.extra_config()}
    settings = settings_from_extra_config(extra)
    plan_geometry(coarse_layout(fixed.host_layout, fixed.unit_tokens), rank_bytes)
    return settings


def _native_settings(rank_bytes: int, model: ModelLayout) -> Settings:
    if rank_bytes < model.row_bytes:
        raise ConfigError(
            f"host memory of {rank_bytes} bytes per rank holds no block of "
            f"{model.name} in vLLM's own connectors, which takes {model.row_bytes} "
            "bytes; give more, or leave them out of --system"
        )
    return Settings(host_memory_bytes=rank_bytes)
