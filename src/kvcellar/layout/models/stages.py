"""Which decoder layers each pipeline stage holds."""

import itertools

from kvcellar.errors import ConfigError


def stage_bounds(num_layers: int, num_stages: int) -> tuple[tuple[int, int], ...]:
    """First decoder layer of each stage, and the one after its last.

    Left-over layers go to the stages before the last one, from the back: the last
    stage has the output to compute.

    Args:
        num_layers: decoder layers of the model.
        num_stages: pipeline stages.

    Raises:
        ConfigError: there are more stages than layers.

    Source: get_pp_indices, distributed/utils.py, vLLM 0.32.
    """
    if num_stages > num_layers:
        raise ConfigError(
            f"pipeline_parallel={num_stages} is more than the model's {num_layers} "
            "layers; use fewer stages"
        )
    even, num_left = divmod(num_layers, num_stages)
    sizes = [even] * num_stages
    for stage in range(2, num_left + 2):
        sizes[-stage] += 1
    starts = [sum(sizes[:i]) for i in range(num_stages + 1)]
    return tuple(itertools.pairwise(starts))
