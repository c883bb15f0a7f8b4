"""A model's cache beside its memories, in the figures that checks compare."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kvcellar.attention import rule_for
from kvcellar.config import Settings, host_budget, rank_bytes
from kvcellar.doctor.configuration import Configuration
from kvcellar.errors import CellarError
from kvcellar.index.capacity import TYPICAL_PROMPT_TOKENS, Capacity, capacity
from kvcellar.layout.groups import CacheLayout, with_chosen_chunk
from kvcellar.layout.models import ModelLayout, model_layout
from kvcellar.layout.models.paths import is_there
from kvcellar.layout.ranks import RanksGeometry, cut_ranks
from kvcellar.plan.device import blocks_per_prompt
from kvcellar.plan.host import asked_bytes
from kvcellar.plan.make import served_layouts
from kvcellar.plan.sharing import num_sharing_ranks

DEFAULT_STEP_TOKENS = 8192
"""Source: default of ``--max-num-batched-tokens`` on large GPUs, vLLM 0.32."""

_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"  # GiB; Source: vllm/envs.py, vLLM 0.32


@dataclass(frozen=True, slots=True)
class Sizing:
    """Figures of a rank of the first pipeline stage. Layouts are those of GPUs.

    Attributes:
        model: the model's layout, of the first pipeline stage.
        layout: what kvcellar keeps of it, in the chunks that the settings ask for.
        smallest_chunk_tokens: the smallest chunk that the model allows.
        figures: what fits into host memory; None where the settings leave it open.
        num_sharing: ranks that keep one copy of what all of them hold.
        host_bytes: host memory of one arena: a rank's share, or those of all ranks that
            share it; None as before.
        problem: why the chunk or the size cannot be used; empty if they can.
        prompt_tokens: a usual prompt, in whole chunks.
        max_tokens: longest request that the server takes.
        device_bytes: KV cache memory of one device; None where unknown.
    """

    model: ModelLayout
    layout: CacheLayout
    smallest_chunk_tokens: int
    figures: Capacity | None
    num_sharing: int
    host_bytes: int | None
    problem: str
    prompt_tokens: int
    max_tokens: int
    device_bytes: int | None

    @property
    def num_device_blocks(self) -> int | None:
        """Blocks of the device's pool; None where unknown."""
        if self.device_bytes is None:
            return None
        return self.device_bytes // self.model.row_bytes

    @property
    def num_device_prompts(self) -> int | None:
        """Usual prompts that the device can hold for their return; None as before."""
        if self.num_device_blocks is None:
            return None
        blocks = blocks_per_prompt(self.model.layout, self.prompt_tokens)
        return self.num_device_blocks // max(blocks, 1)

    @property
    def prompt_bytes(self) -> tuple[int, int]:
        """Host bytes of a usual prompt on one rank: its chunks, and its checkpoint."""
        layout, boundary = self.layout, self.prompt_tokens
        num_chunks = boundary // layout.chunk_tokens
        chunks = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
        checkpoint = sum(
            layout.cell_bytes(p) * len(rule_for(layout.groups[p]).needed(boundary))
            for p in layout.checkpoint_positions
        )
        return num_chunks * chunks, checkpoint

    def request_bytes(self, num_tokens: int) -> int:
        """Device memory that one running request of this length holds, at most."""
        blocks = self.model.blocks_per_request(num_tokens, DEFAULT_STEP_TOKENS)
        return blocks * self.model.row_bytes


def size_up(
    configuration: Configuration, environment: Mapping[str, str]
) -> tuple[Sizing | None, str]:
    """Work out the figures, or say why there are none.

    Returns:
        None and an empty text where no model is given.
    """
    if configuration.model is None:
        return None, ""
    try:
        model = _model(configuration)
    except CellarError as cause:
        return None, str(cause)
    settings = configuration.settings
    smallest = _smallest_chunks(model, settings)
    layout, problem = _chunked(smallest, settings)
    limit = configuration.number("--max-model-len") or model.max_model_tokens
    usual = min(configuration.prompt_tokens or TYPICAL_PROMPT_TOKENS, limit)
    host_bytes, figures, num_sharing = None, None, 1
    if settings is not None:
        try:
            per_node = configuration.num_local_ranks
            num_sharing = num_sharing_ranks(model, settings, per_node)
        except CellarError as cause:
            problem = problem or str(cause)
        host_bytes = rank_bytes(settings, configuration.num_ranks) * num_sharing
        try:
            geometry = _geometry(
                model, settings, configuration.tensor_parallel, num_sharing
            )
            host_bytes = asked_bytes(settings, geometry)[0] * num_sharing
            figures = capacity(layout, geometry.ranks[0], usual)
        except CellarError as cause:
            problem = problem or str(cause)
    return (
        Sizing(
            model=model,
            layout=layout,
            smallest_chunk_tokens=smallest.chunk_tokens,
            figures=figures,
            num_sharing=num_sharing,
            host_bytes=host_bytes,
            problem=problem,
            prompt_tokens=max(usual // layout.chunk_tokens, 1) * layout.chunk_tokens,
            max_tokens=limit,
            device_bytes=device_bytes(configuration, environment),
        ),
        "",
    )


def device_bytes(
    configuration: Configuration, environment: Mapping[str, str]
) -> int | None:
    """KV cache memory of one device, where something states it; else None."""
    if configuration.device_memory_bytes is not None:
        return configuration.device_memory_bytes
    stated = configuration.number("--kv-cache-memory-bytes")
    if stated is not None:
        return stated
    space = environment.get(_CPU_SPACE, "")
    return int(space) * 2**30 if space.isdecimal() and int(space) else None


def _model(configuration: Configuration) -> ModelLayout:
    assert configuration.model is not None
    path = Path(configuration.model).expanduser()
    return model_layout(
        path if is_there(path) else configuration.model,
        cache_dtype=configuration.value("--kv-cache-dtype") or "auto",
        block_tokens=configuration.number("--block-size"),
        tensor_parallel=configuration.tensor_parallel,
        pipeline_parallel=configuration.pipeline_parallel,
    )


def _geometry(
    model: ModelLayout, settings: Settings, tensor_parallel: int, num_sharing: int
) -> RanksGeometry:
    """The cut of all ranks' memory.

    Raises:
        CellarError: the chunk or the size cannot be used.
    """
    stages = served_layouts(model, settings)
    ranks = [layout for layout in stages for _ in range(tensor_parallel)]
    return cut_ranks(ranks, host_budget(settings), num_sharing)


def _smallest_chunks(model: ModelLayout, settings: Settings | None) -> CacheLayout:
    """What the connector keeps of the model, in the smallest chunks."""
    free = replace(settings or Settings(), chunk_tokens=None, blocks_per_chunk=None)
    return served_layouts(model, free)[0]


def _chunked(layout: CacheLayout, settings: Settings | None) -> tuple[CacheLayout, str]:
    """The layout in the chunks that the settings ask for, or why they do not fit."""
    if settings is None:
        return layout, ""
    chosen = (settings.chunk_tokens, settings.blocks_per_chunk)
    try:
        return with_chosen_chunk(layout, *chosen), ""
    except CellarError as cause:
        return layout, str(cause)
