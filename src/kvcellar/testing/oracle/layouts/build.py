"""From a layout's name to the configurations that an engine would start with."""

from dataclasses import dataclass
from typing import Any

from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    resolve_cache_hit_alignment_tokens,
    resolve_kv_cache_block_sizes,
    update_kv_cache_capacity,
)
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.compat import plan_ranks
from kvcellar.testing.oracle.layouts import (
    attention_only,
    deepseek_v4,
    deepseek_v41,
    odd,
    recurrent,
)
from kvcellar.testing.oracle.layouts.capacity import device_blocks
from kvcellar.testing.oracle.layouts.engine import (
    EngineLimits,
    engine_config,
    model_runner,
)
from kvcellar.testing.oracle.layouts.ranks import (
    ONE_RANK,
    RankShape,
    adopt_ranks,
    layers_of_ranks,
    num_decoder_layers,
)
from kvcellar.testing.oracle.layouts.recipe import LayerSpecs, Recipe, Size

_FAMILIES = (deepseek_v4, deepseek_v41, attention_only, recurrent, odd)
_RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for family in _FAMILIES for recipe in family.RECIPES
}

LAYOUT_NAMES: tuple[str, ...] = tuple(_RECIPES)
"""Every layout that can be built."""

FEWEST_BATCHED_TOKENS = 64


@dataclass(frozen=True, slots=True)
class OracleLayout:
    """One layout, planned.

    Attributes:
        vllm_config: the engine's whole configuration.
        worker_configs: each rank's ``KVCacheConfig``, in rank order.
        scheduler_config: the scheduler's copy of the first.
        scheduler_block_tokens: least common multiple of all groups' blocks.
        hash_block_tokens: tokens per prefix hash.
        prompt_tokens: a long prompt for this layout.
    """

    name: str
    vllm_config: Any
    worker_configs: tuple[Any, ...]
    scheduler_config: Any
    scheduler_block_tokens: int
    hash_block_tokens: int
    prompt_tokens: int

    @property
    def worker_config(self) -> Any:
        """The first rank's ``KVCacheConfig``."""
        return self.worker_configs[0]


def build(  # noqa: PLR0913 - the engine's limits, all by keyword
    name: str,
    *,
    extra_config: dict[str, Any],
    num_device_blocks: int | None = None,
    device_prompts: float = 3.0,
    max_model_len: int | None = None,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int | None = None,
    async_scheduling: bool = False,
    hash_divisor: int = 1,
    is_small: bool = True,
    ranks: RankShape = ONE_RANK,
    is_v2: bool = False,
) -> OracleLayout:
    """Plan a layout; allocates no cache.

    Args:
        name: one of ``LAYOUT_NAMES``.
        extra_config: the connector's settings.
        num_device_blocks: of the whole device cache, the null block included; None
            takes what ``device_prompts`` and ``max_model_len`` need.
        device_prompts: long prompts, with short answers, that fit at once.
        max_model_len: tokens of the longest request; None takes two long prompts.
        max_num_batched_tokens: per step; None takes a quarter of a long prompt.
        hash_divisor: hashes per greatest common block; more than 1 lets hits on models
            with recurrent state end inside a block. One group allows no other than 1.
        is_small: same groups with few layers and few bytes per token.
        ranks: who holds which layers.
        is_v2: whether vLLM's second model runner is to run it, which keeps more steps
            under way if there are several stages.

    Raises:
        ConfigError: there is no such layout, or the stages do not add up to it.
        ValueError: the engine refuses its limits, such as too few device blocks.
    """
    recipe = _recipe(name)
    layers = recipe.layers(Size.SMALL if is_small else Size.REAL)
    quarter = max(recipe.prompt_tokens // 4, FEWEST_BATCHED_TOKENS, max_num_seqs)
    limits = EngineLimits(
        max_model_len=max_model_len or 2 * recipe.prompt_tokens,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens or quarter,
        async_scheduling=async_scheduling,
    )
    vllm_config = engine_config(recipe, layers, limits, extra_config)
    register_all_kvcache_specs(vllm_config)
    adopt_ranks(vllm_config, ranks)  # stages keep more tokens under way
    if num_device_blocks is None:
        with model_runner(is_v2=is_v2):
            num_device_blocks = device_blocks(
                vllm_config, recipe, layers, device_prompts
            )
    vllm_config.cache_config.num_gpu_blocks_override = num_device_blocks
    by_rank = layers_of_ranks(layers, ranks)
    return _planned(recipe, vllm_config, by_rank, hash_divisor)


def num_layers_of(name: str) -> int:
    """Decoder layers with a cache of a small layout."""
    return num_decoder_layers(_recipe(name).layers(Size.SMALL))


def _recipe(name: str) -> Recipe:
    if name not in _RECIPES:
        known = ", ".join(LAYOUT_NAMES)
        raise ConfigError(f"there is no layout {name!r}; choose one of: {known}")
    return _RECIPES[name]


def _planned(
    recipe: Recipe, vllm_config: Any, by_rank: list[LayerSpecs], hash_divisor: int
) -> OracleLayout:
    """The steps that the engine core takes at start, in its order.

    Source: EngineCore._initialize_kv_caches, v1/engine/core.py, vLLM 0.32. The number
    of blocks is given, so the memory passed in counts for nothing.
    """
    workers = _plan_with_room(vllm_config, by_rank)
    for worker in workers:
        worker.kv_cache_layout = vllm_config.cache_config.kv_cache_layout
    scheduler = generate_scheduler_kv_cache_config(workers)
    _adopt(vllm_config, scheduler)
    scheduler_tokens, hash_tokens = resolve_kv_cache_block_sizes(scheduler, vllm_config)
    if hash_divisor > 1 and len(scheduler.kv_cache_groups) > 1:
        vllm_config.cache_config.prefix_match_unit = hash_tokens // hash_divisor
        scheduler_tokens, hash_tokens = resolve_kv_cache_block_sizes(
            scheduler, vllm_config
        )
    alignment_tokens = resolve_cache_hit_alignment_tokens(
        scheduler, vllm_config, scheduler_tokens, hash_tokens
    )
    for config in (*workers, scheduler):
        config.hash_block_size = hash_tokens
        config.cache_hit_alignment_tokens = alignment_tokens
    return OracleLayout(
        recipe.name,
        vllm_config,
        tuple(workers),
        scheduler,
        scheduler_tokens,
        hash_tokens,
        recipe.prompt_tokens,
    )


def _plan_with_room(vllm_config: Any, by_rank: list[LayerSpecs]) -> list[Any]:
    """Plan all ranks, with so many blocks more that the longest request fits each.

    Blocks are counted for the whole model; a stage that lacks a group may need a few
    more, since its pool is less wide.
    """
    cache_config = vllm_config.cache_config
    first: int = cache_config.num_gpu_blocks_override
    while True:
        try:
            return plan_ranks(vllm_config, by_rank)
        except ValueError:
            if len(by_rank) == 1 or cache_config.num_gpu_blocks_override > 2 * first:
                raise
            cache_config.num_gpu_blocks_override += first // 16 + 1


def _adopt(vllm_config: Any, scheduler_config: Any) -> None:
    """Let the engine's configuration know what was planned."""
    specs = [group.kv_cache_spec for group in scheduler_config.kv_cache_groups]
    blocks = [spec.block_size for spec in specs if spec.prefix_cacheable]
    cache_config = vllm_config.cache_config
    cache_config.num_gpu_blocks = scheduler_config.num_blocks
    cache_config.block_size = min(blocks)
    update_kv_cache_capacity(vllm_config, scheduler_config)
    vllm_config.validate_block_size()
