"""One workload through kvcellar and through vLLM's own two connectors."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from native_causes import FINER, Explainer
from native_rig import (
    CELLAR,
    OFFLOADING,
    SIMPLE,
    Candidate,
    Engine,
    Hit,
    cellar_layout,
    hasher_of,
)
from native_workload import Lengths, Planned, WorkloadMaker

from kvcellar.testing.oracle.__main__ import prompt_bytes
from kvcellar.testing.oracle.layouts import OracleLayout, build

NATIVES = (SIMPLE, OFFLOADING)
ROW_PADDING_BYTES = 4096
"""The OffloadingConnector's rows are multiples of this.

Source: SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT, vLLM 0.32.
"""
SPARE_TOKENS = 64  # at the end of the longest request, for drafts


@dataclass(slots=True)
class Lost:
    """A look-up in which a native connector found more.

    Attributes:
        cause: one of ``native_causes``.
        hits: tokens by connector.
        resumable: boundaries of the prompt at which kvcellar could resume.
    """

    request: str
    num_prompt_tokens: int
    cause: str
    hits: dict[str, int]
    resumable: list[int]

    @property
    def tokens(self) -> int:
        """How many tokens fewer kvcellar found."""
        return max(self.hits.values()) - self.hits[CELLAR.name]


@dataclass(slots=True)
class Outcome:
    """One workload.

    Attributes:
        host: ``"scarce"`` or ``"ample"``.
        totals: hit tokens by connector.
        failed: native connectors that broke down, with the reason.
    """

    seed: int
    host: str
    host_bytes: int
    num_prompt_tokens: int
    num_requests: int
    totals: dict[str, int]
    lost: list[Lost]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def lost_tokens(self) -> int:
        """Tokens by which kvcellar's total is below the better native one's."""
        best = max(self.totals[native.name] for native in NATIVES)
        return best - self.totals[CELLAR.name]


class Comparison:
    """All workloads of one layout.

    Args:
        is_small: few bytes per token. The OffloadingConnector pads its rows to 4 KiB,
            which only rows of published size hardly feel, so these are the default.
        is_dense: the engine keeps every window's blocks, not only those at the end of
            prompts, and so do its connectors; its default is the latter.
        cellar: kvcellar with other settings than its defaults.
    """

    def __init__(
        self,
        name: str,
        *,
        is_small: bool = False,
        is_dense: bool = False,
        cellar: Candidate = CELLAR,
    ) -> None:
        self.layout = build(name, extra_config={}, is_small=is_small)
        if is_dense:
            retain_everything(self.layout)
        self.hashes_of = hasher_of(self.layout)
        self.cellar = cellar
        longest = self.layout.vllm_config.model_config.max_model_len
        self.lengths = Lengths(
            unit_tokens=cellar_layout(self.layout).chunk_tokens,
            hash_tokens=self.layout.hash_block_tokens,
            prompt_tokens=self.layout.prompt_tokens,
            most_tokens=longest - SPARE_TOKENS,
        )

    def run(self, seed: int, host: str) -> Outcome:
        """Ask all three connectors the same; the natives first."""
        requests = WorkloadMaker(seed, self.lengths).make(self.hashes_of)
        host_bytes = draw_host_bytes(self.layout, requests, seed, host)
        failed: dict[str, str] = {}
        hits: dict[str, list[Hit]] = {}
        for native in NATIVES:
            try:
                hits[native.name] = self._serve_all(native, host_bytes, requests)
            except Exception as cause:  # noqa: BLE001 - whatever breaks it is a result
                failed[native.name] = describe_failure(cause)
                hits[native.name] = [Hit(0, 0)] * len(requests)
        lost = self._serve_cellar(host_bytes, requests, hits)
        return Outcome(
            seed=seed,
            host=host,
            host_bytes=host_bytes,
            num_prompt_tokens=sum(len(r.prompt) for r in requests),
            num_requests=len(requests),
            totals={n: sum(h.tokens for h in found) for n, found in hits.items()},
            lost=lost,
            failed=failed,
        )

    def _serve_all(
        self, candidate: Candidate, host_bytes: int, requests: Sequence[Planned]
    ) -> list[Hit]:
        engine = Engine(self.layout, candidate, host_bytes)
        return [engine.serve(planned) for planned in requests]

    def _serve_cellar(
        self,
        host_bytes: int,
        requests: Sequence[Planned],
        hits: dict[str, list[Hit]],
    ) -> list[Lost]:
        """Fill in kvcellar's hits; explain each that a native one exceeds."""
        engine = Engine(self.layout, self.cellar, host_bytes)
        explainer = Explainer(engine.connector.scheduler_side.offloader)
        best = [max(found) for found in zip(*hits.values(), strict=True)]
        hits[CELLAR.name], lost = [], []
        for number, (planned, native) in enumerate(zip(requests, best, strict=True)):
            view = explainer.look(planned, native.promised) if native.tokens else None
            found = engine.serve(planned)
            hits[CELLAR.name].append(found)
            explainer.served(planned)
            if view is not None and found.tokens < native.tokens:
                is_inside = view.boundary < found.promised
                lost.append(
                    Lost(
                        f"{planned.request_id} ({planned.kind})",
                        len(planned.prompt),
                        FINER if is_inside else view.reason,
                        {name: all_[number].tokens for name, all_ in hits.items()},
                        view.resumable,
                    )
                )
        return lost


def retain_everything(layout: OracleLayout) -> None:
    """Set ``prefix_cache_retention_interval`` to none, wherever the engine reads it."""
    layout.vllm_config.cache_config.prefix_cache_retention_interval = None
    layout.worker_config.prefix_cache_retention_interval = None
    layout.scheduler_config.prefix_cache_retention_interval = None


def draw_host_bytes(
    layout: OracleLayout, requests: Sequence[Planned], seed: int, host: str
) -> int:
    """Host memory of a workload, the same for all connectors.

    Args:
        host: ``"ample"``: every block of every request has a native row; ``"scarce"``:
            from one long prompt in kvcellar's cells up to half of that.
    """
    config = layout.scheduler_config
    row_bytes: int = config.kv_cache_tensors[0].size // config.num_blocks
    row_bytes = -(-row_bytes // ROW_PADDING_BYTES) * ROW_PADDING_BYTES
    blocks = [
        group.kv_cache_spec.block_size
        for group in config.kv_cache_groups
        if group.kv_cache_spec.prefix_cacheable
    ]
    lengths = [len(r.prompt) + len(r.answer) for r in requests]
    num_rows = sum(length // block + 1 for length in lengths for block in blocks)
    ample: int = num_rows * row_bytes
    if host == "ample":
        return ample
    least = prompt_bytes(layout)
    most = max(ample // 2, least)
    share = random.Random(f"host {seed}").random()
    drawn: float = least * (most / least) ** share
    return round(drawn)


def describe_failure(cause: Exception) -> str:
    """With what a connector broke down, and where."""
    place = cause.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return f"{type(cause).__name__}: {cause}"
    file = place.tb_frame.f_code.co_filename.rsplit("/", 1)[-1]
    return f"{type(cause).__name__}: {cause} in {file}:{place.tb_lineno}"
