"""What the planner has decided since start; plain integers, read by the metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class CoreCounters:
    """Running totals.

    Attributes:
        loaded_tokens: tokens beyond local prefixes that load jobs were started for.
        stored_chunks: chunks handed to a store job.
        stored_checkpoints: checkpoints handed to a store job.
        stores_without_room: cells refused because everything in host memory is pinned.
        stores_without_block: chunks or checkpoints whose device block had gone.
        held_checkpoints: checkpoints whose turn had come and that were there already.
        unadmitted_requests: prompts that were not let in, or not as a whole.
        lost_chunks: chunks whose device copy went before it was stored (lazy mode).
        failed_jobs: jobs that a rank reported as failed.
        refused_loads: loads the engine wanted that could not be planned.
        chosen_loads: requests admitted with a load.
        short_loads: requests recomputed since less than ``min_load_tokens`` was there.
        cheap_recomputes: requests recomputed since that was measured to be faster.
    """

    loaded_tokens: int = 0
    stored_chunks: int = 0
    stored_checkpoints: int = 0
    stores_without_room: int = 0
    stores_without_block: int = 0
    held_checkpoints: int = 0
    unadmitted_requests: int = 0
    lost_chunks: int = 0
    failed_jobs: int = 0
    refused_loads: int = 0
    chosen_loads: int = 0
    short_loads: int = 0
    cheap_recomputes: int = 0
