"""Which rank holds which layers: tensor ranks hold all of a stage, stages differ."""

import re
from dataclasses import dataclass
from typing import Any

from kvcellar.errors import ConfigError
from kvcellar.testing.oracle.layouts.recipe import LayerSpecs

_DECODER_LAYER = re.compile(r"\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class RankShape:
    """How ranks share a model.

    Attributes:
        tensor: ranks that each hold a part of every layer of their stage, all as many
            bytes.
        stages: decoder layers of each pipeline stage.
    """

    tensor: int = 1
    stages: tuple[int, ...] = ()

    @property
    def num_stages(self) -> int:
        """Pipeline stages; without any, all layers are in one."""
        return max(len(self.stages), 1)

    @property
    def num_ranks(self) -> int:
        """Ranks in all."""
        return self.tensor * self.num_stages


ONE_RANK = RankShape()
"""All layers on one rank."""


def num_decoder_layers(layers: LayerSpecs) -> int:
    """Decoder layers that keep a cache; each may keep several."""
    return len({_decoder_layer(name) for name in layers})


def layers_of_ranks(layers: LayerSpecs, shape: RankShape) -> list[LayerSpecs]:
    """Specs of each rank's layers, in rank order.

    Raises:
        ConfigError: the stages' layers are not those of the model.
    """
    numbers = sorted({_decoder_layer(name) for name in layers})
    sizes = shape.stages or (len(numbers),)
    if sum(sizes) != len(numbers) or min(sizes) < 1:
        raise ConfigError(
            f"stages of {list(sizes)} layers do not share out {len(numbers)} layers "
            "with a cache; give each stage one or more, and all of them together"
        )
    stage_of = dict(zip(numbers, _spread(sizes), strict=True))
    by_stage: list[LayerSpecs] = [{} for _ in sizes]
    for name, spec in layers.items():
        by_stage[stage_of[_decoder_layer(name)]][name] = spec
    return [dict(stage) for stage in by_stage for _ in range(shape.tensor)]


def adopt_ranks(vllm_config: Any, shape: RankShape) -> None:
    """Let the engine's configuration know of the ranks; it starts none of them."""
    parallel = vllm_config.parallel_config
    parallel.tensor_parallel_size = shape.tensor
    parallel.pipeline_parallel_size = shape.num_stages
    parallel.world_size = shape.num_ranks


def _decoder_layer(name: str) -> int:
    found = _DECODER_LAYER.search(name)
    assert found is not None, name
    return int(found[1])


def _spread(sizes: tuple[int, ...]) -> list[int]:
    """The stage of each layer."""
    return [stage for stage, size in enumerate(sizes) for _ in range(size)]
