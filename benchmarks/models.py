"""The cache layouts of real models that the benchmarks use; no engine needed.

Figures are one rank's, without tensor parallelism. Source: the layer shapes that vLLM
0.32 declares for these models, grouped by vLLM's own code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvcellar.layout.dead_state import with_dead_state_rule
from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
)
from kvcellar.layout.models import model_layout

FULL, WINDOW = AttentionKind.FULL, AttentionKind.WINDOW


@dataclass(frozen=True, slots=True)
class Model:
    """A layout, and what vLLM's own connectors would reserve for one of its blocks.

    Attributes:
        row_bytes: bytes of one block of any group in the engine's pool, padding
            included; vLLM's connectors keep this much for every block they store.
        is_mla: whether the engine describes its layers as MLA.
        compressor_ratios: compression ratio of groups that hold a compressor's state.
    """

    name: str
    layout: CacheLayout
    row_bytes: int
    is_mla: bool = False
    compressor_ratios: Mapping[int, int] = field(default_factory=dict)

    @property
    def without_dead_state(self) -> "Model":
        """The same with kvcellar's rule for such states, as it is by default."""
        layout = with_dead_state_rule(self.layout, self.compressor_ratios)
        return replace(self, layout=layout)


def _group(
    group_id: int,
    tokens_per_block: int,
    payload_bytes: int,
    *,
    window: int | None = None,
    padded_bytes: int | None = None,
) -> GroupLayout:
    return GroupLayout(
        group_id=group_id,
        kind=FULL if window is None else WINDOW,
        tokens_per_block=tokens_per_block,
        payload_bytes=payload_bytes,
        padded_bytes=padded_bytes or payload_bytes,
        num_layers=1,
        span_tokens=window,
    )


def _uniform(groups: list[GroupLayout]) -> CacheLayout:
    return make_layout(
        groups,
        hash_block_tokens=16,
        alignment_tokens=16,
        scheduler_block_tokens=16,
    )


def deepseek_v4_flash() -> Model:
    """Windows of 128 twice, compressed MLA, and two compressors' states; fp8."""
    return _published("DeepSeek-V4-Flash", "deepseek-v4-flash", cache_dtype="fp8")


def gemma3_27b() -> Model:
    """52 layers with a window of 1024 in six groups, and ten full ones; bf16."""
    return _published("Gemma-3-27B", "gemma-3-27b")


def gpt_oss_20b() -> Model:
    """12 layers with a window of 128, and 12 full ones; bf16."""
    return _published("gpt-oss-20b", "gpt-oss-20b")


def _published(name: str, entry: str, cache_dtype: str = "auto") -> Model:
    found = model_layout(entry, cache_dtype=cache_dtype)
    ratios = found.compressor_ratios
    return Model(name, found.layout, found.row_bytes, found.is_mla, ratios)


def plain_full() -> Model:
    """One group of full attention."""
    return Model("full attention", _uniform([_group(0, 16, 65536)]), 65536)


def full_and_three_windows() -> Model:
    """Four groups of the same size: one full, three with a window of 1024."""
    windows = [_group(i, 16, 4096, window=1024) for i in (1, 2, 3)]
    return Model("full + 3 windows", _uniform([_group(0, 16, 4096), *windows]), 4096)
