"""The layout of a whole model as one rank sees it, worked out without an engine."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcellar.errors import IncompatibleError
from kvcellar.layout.dead_state import with_dead_state_rule
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families import model_layers
from kvcellar.layout.models.families.parts import ModelLayers
from kvcellar.layout.models.grouping import Group, group_layers
from kvcellar.layout.models.layer import AttentionCache, CacheForm
from kvcellar.layout.models.options import ServingOptions
from kvcellar.layout.models.plan import (
    GroupPlan,
    block_sizes,
    layout_of,
    plan_groups,
    pool_row_bytes,
)
from kvcellar.layout.models.stages import stage_bounds

_LATENT_FORMS = {CacheForm.LATENT, CacheForm.LATENT_WINDOW}


@dataclass(frozen=True, slots=True)
class StageLayout:
    """What each rank of one pipeline stage holds.

    Attributes:
        first_layer: first decoder layer of the stage.
        end_layer: the one after its last.
        layout: cacheable groups, with this stage's bytes.
        groups_all: all groups, with this stage's bytes.
        row_bytes: bytes of one block of this stage's pool.
    """

    first_layer: int
    end_layer: int
    layout: CacheLayout
    groups_all: tuple[GroupPlan, ...]
    row_bytes: int


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """A model's cache, with the figures of one rank of the first pipeline stage.

    Attributes:
        layout: the groups that can be hit, without speculative decoding.
        row_bytes: what one device block of any group costs, padding included. vLLM's
            own connectors reserve this much for every block they store.
        groups_all: all groups, scratch included.
        num_layers: decoder layers of the whole model.
        max_model_tokens: longest context that the engine allows by itself.
        is_mla: whether keys and values are latent vectors.
        compressor_ratios: tokens per compressed entry by id of each group that holds
            nothing but compressors' states.
        cache_dtype: the cache's format, by the engine's name.
        options: how the model is served.
        num_identical_ranks: tensor-parallel ranks that the engine declares to hold the
            same bytes; 1 where each holds its own.
        num_repeating_ranks: tensor-parallel ranks that hold the same bytes because they
            repeat a KV head, which the engine does not declare; 1 for none.
        stages: the same figures for each pipeline stage.
    """

    name: str
    layout: CacheLayout
    row_bytes: int
    groups_all: tuple[GroupPlan, ...]
    num_layers: int
    max_model_tokens: int
    is_mla: bool
    compressor_ratios: Mapping[int, int]
    cache_dtype: str
    options: ServingOptions
    num_identical_ranks: int
    num_repeating_ranks: int
    stages: tuple[StageLayout, ...]

    @property
    def without_dead_state(self) -> "ModelLayout":
        """The same under kvcellar's rule for compressors' states, its default.

        Raises:
            IncompatibleError: the rule does not hold for the model.
        """
        stages = tuple(
            dataclasses.replace(
                stage,
                layout=with_dead_state_rule(stage.layout, self.compressor_ratios),
            )
            for stage in self.stages
        )
        return dataclasses.replace(self, layout=stages[0].layout, stages=stages)

    @property
    def rank_statement(self) -> str:
        """One sentence for people: whose bytes these are."""
        tensor, pipeline = self.options.tensor_parallel, self.options.pipeline_parallel
        first = self.stages[0]
        text = f"bytes are one rank's of {tensor * pipeline}"
        if pipeline > 1:
            text += f", holding layers {first.first_layer} to {first.end_layer - 1}"
        if self.num_identical_ranks > 1:
            text += f"; {self.num_identical_ranks} ranks hold the same bytes"
        return text

    def blocks_per_request(self, num_tokens: int, in_flight_tokens: int) -> int:
        """Most blocks of the pool that one request holds at once, over all groups.

        Args:
            num_tokens: prompt and answer.
            in_flight_tokens: see ``GroupPlan.blocks_per_request``.
        """
        return sum(
            group.blocks_per_request(num_tokens, in_flight_tokens)
            for group in self.groups_all
        )


def plan_model(config: ModelConfig, options: ServingOptions) -> ModelLayout:
    """Work out a model's layout from its configuration.

    Raises:
        IncompatibleError: the architecture, or its mix of layers, is not known; or a
            pipeline stage holds no layer that keeps a cache.
        ConfigError: the configuration lacks something, or the options do not fit it.
    """
    model = model_layers(config, options)
    groups = group_layers(model.layers, is_block_outer=model.is_block_outer)
    stages = _stages(model, groups, options.pipeline_parallel)
    tensor = options.tensor_parallel
    return ModelLayout(
        name=config.name,
        layout=stages[0].layout,
        row_bytes=stages[0].row_bytes,
        groups_all=stages[0].groups_all,
        num_layers=model.num_layers,
        max_model_tokens=model.max_tokens,
        is_mla=any(layer.cache.form in _LATENT_FORMS for layer in model.layers),
        compressor_ratios=_compressor_ratios(groups),
        cache_dtype=model.cache_dtype,
        options=options,
        num_identical_ranks=tensor if model.are_ranks_identical else 1,
        num_repeating_ranks=_num_repeating_ranks(config, model, tensor),
        stages=stages,
    )


def _num_repeating_ranks(
    config: ModelConfig, model: ModelLayers, tensor_parallel: int
) -> int:
    """Ranks that repeat each KV head, if every layer has one head on each rank."""
    caches = [layer.cache for layer in model.layers]
    if not all(isinstance(c, AttentionCache) and c.num_heads == 1 for c in caches):
        return 1
    if any(cache.form in _LATENT_FORMS for cache in caches):
        return 1
    queries = config.integer("num_attention_heads")
    total = config.integer("num_key_value_heads", "num_kv_heads", default=queries)
    return max(tensor_parallel // total, 1)


def _stages(
    model: ModelLayers, groups: Sequence[Group], num_stages: int
) -> tuple[StageLayout, ...]:
    sizes = block_sizes(groups)
    stages: list[StageLayout] = []
    for first, end in stage_bounds(model.num_layers, num_stages):
        held = [[layer for layer in g if first <= layer.index < end] for g in groups]
        plans = plan_groups(groups, held)
        if not any(plan.num_layers for plan in plans):
            raise IncompatibleError(
                f"a pipeline stage of layers {first} to {end - 1} keeps no cache: the "
                "engine cannot serve it; use fewer stages"
            )
        layout = layout_of(plans, sizes)
        stages.append(StageLayout(first, end, layout, plans, pool_row_bytes(plans)))
    return tuple(stages)


def _compressor_ratios(groups: Sequence[Group]) -> dict[int, int]:
    """Groups whose layers are all compressors' states of one ratio."""
    found: dict[int, int] = {}
    for group_id, group in enumerate(groups):
        ratios = {layer.cache.compressor_ratio for layer in group}
        ratio = ratios.pop()
        if ratio is not None and not ratios:
            found[group_id] = ratio
    return found
