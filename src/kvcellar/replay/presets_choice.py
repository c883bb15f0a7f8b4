"""Which speeds a replay uses: a preset, then a file, then single options."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from kvcellar.errors import ConfigError
from kvcellar.replay.costs import NO_TIME, CostModel
from kvcellar.replay.presets import (
    DEFAULT_GPU,
    STEP_SECONDS,
    active_parameters,
    gpu_named,
    preset_costs,
)

COST_NAMES = tuple(f.name for f in fields(CostModel))
_MAY_BE_ZERO = ("decode_seconds_per_token", "step_seconds")


@dataclass(frozen=True, slots=True)
class CostChoice:
    """What the user says about speed.

    Attributes:
        is_timeless: every request ends before the next one comes.
        gpu: a preset's name; None takes the default one.
        active_parameters: that one token uses; None looks the model up.
        costs_path: JSON file with some or all of ``COST_NAMES``.
        given: speeds by name; they win over all else.
    """

    is_timeless: bool = False
    gpu: str | None = None
    active_parameters: float | None = None
    costs_path: str | None = None
    given: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChosenCosts:
    """The speeds, and where they come from.

    Attributes:
        sources: ``"preset"``, ``"file"`` or ``"option"`` for each name.
        preset: words for the preset, where it is used.
    """

    costs: CostModel
    is_timeless: bool
    sources: Mapping[str, str] = field(default_factory=dict)
    preset: str = ""


def choose_costs(choice: CostChoice, model_name: str, num_gpus: int) -> ChosenCosts:
    """Put the speeds together.

    Raises:
        ConfigError: the file or a value is wrong, or a speed is still missing.
    """
    if choice.is_timeless:
        _refuse_speeds(choice)
        return ChosenCosts(NO_TIME, is_timeless=True)
    gpu_named(choice.gpu or DEFAULT_GPU)  # refused even where nothing is left to assume
    known: dict[str, tuple[str, float]] = {}
    if choice.costs_path is not None:
        read = read_costs(choice.costs_path)
        known.update({name: ("file", value) for name, value in read.items()})
    for name, value in choice.given.items():
        known[name] = ("option", _checked(name, value, f"{name}={value}"))
    preset = ""
    missing = [name for name in COST_NAMES if name not in known]
    if missing:
        assumed, preset = _assumed(choice, missing, model_name, num_gpus)
        known.update({name: ("preset", assumed[name]) for name in missing})
    costs = CostModel(**{name: value for name, (_, value) in known.items()})
    sources = {name: known[name][0] for name in COST_NAMES}
    return ChosenCosts(costs, is_timeless=False, sources=sources, preset=preset)


def read_costs(path: str) -> dict[str, float]:
    """Read a JSON object of speeds by name.

    Raises:
        ConfigError: the file, a name or a value is not what it should be.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"costs={path!r} cannot be read: {error.strerror}; name a readable file"
        ) from error
    except ValueError as error:
        raise ConfigError(f"costs={path!r} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"costs={path!r} is no JSON object; write {{name: number}}")
    unknown = sorted(set(content) - set(COST_NAMES))
    if unknown:
        raise ConfigError(
            f"costs={path!r} has an unknown name {unknown[0]!r}; known are "
            f"{', '.join(COST_NAMES)}"
        )
    return {
        name: _checked(name, value, f"{name}={value!r} in {path}")
        for name, value in content.items()
    }


def _checked(name: str, value: object, what: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):  # type: ignore[arg-type]  # a number
        raise ConfigError(f"{what} is no number; give a finite one")
    number = float(value)  # type: ignore[arg-type]  # checked above
    if number < 0 or (number == 0 and name not in _MAY_BE_ZERO):
        raise ConfigError(f"{what} is not possible; give a number above zero")
    return number


def _refuse_speeds(choice: CostChoice) -> None:
    named = {
        "--gpu": choice.gpu,
        "--active-parameters": choice.active_parameters,
        "--costs": choice.costs_path,
        **{
            f"--{name.replace('_', '-')}": value for name, value in choice.given.items()
        },
    }
    for option, value in named.items():
        if value is not None:
            raise ConfigError(
                f"--no-time takes no time for anything, so {option} {value} means "
                "nothing; leave one of them out"
            )


def _assumed(
    choice: CostChoice, missing: list[str], model_name: str, num_gpus: int
) -> tuple[dict[str, float], str]:
    """The preset's speeds, and words for where they come from."""
    if missing == ["step_seconds"]:  # no model and no GPU needed for this one
        return {"step_seconds": STEP_SECONDS}, ""
    gpu_name = (choice.gpu or DEFAULT_GPU).lower()
    gpu = gpu_named(gpu_name)
    num_parameters = choice.active_parameters
    if num_parameters is None:
        num_parameters = active_parameters(model_name)
    if num_parameters is None:
        raise ConfigError(
            f"the number of parameters that a token of {model_name} uses is not "
            f"known, so {missing[0]} cannot be assumed; give --active-parameters, "
            "--costs, or --no-time"
        )
    if not 0 < num_parameters < math.inf:
        raise ConfigError(
            f"active_parameters={num_parameters} is not possible; give a number above "
            "zero such as 8e9"
        )
    words = f"{num_gpus} x {gpu_name}, {num_parameters / 1e9:g} billion parameters used"
    return asdict(preset_costs(gpu, num_parameters, num_gpus)), words
