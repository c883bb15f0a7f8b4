"""Everything a user can set, in base units, and what follows from it for memory."""

from dataclasses import dataclass

DEFAULT_HOST_MEMORY_BYTES = 8 * 2**30  # the default of vLLM's own connector
DEFAULT_SPACED_SHARE = 0.25
DEFAULT_LEASE_SHARE = 0.25
TENANT_NAMES = ("cache_salt", "tag")
EVICTION_POLICIES = ("lru", "lru-2", "lrfu", "s3-fifo", "lhd", "adaptive")
SELECTIVE_POLICIES = frozenset({"lhd", "adaptive"})
"""Policies that may keep out what would be the first to go."""

ADMISSIONS = ("all", "second-touch")
SHARINGS = ("auto", "on", "off")
PLACEMENTS = ("geometric", "fixed", "junctions", "turn-end", "prompt-end")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a user can set, checked and in base units.

    Attributes:
        host_memory_bytes: host memory of the whole server, shared by all its ranks.
        host_memory_bytes_per_rank: host memory of one rank; wins over that of the
            whole server.
        mode: ``"eager"`` stores a chunk as soon as it is complete, ``"lazy"`` when
            the device is about to lose it.
        eviction_policy: who goes when room is needed; one of ``EVICTION_POLICIES``.
        placement: which boundaries get a checkpoint; one of ``PLACEMENTS``, each a set
            of rules in ``core/placements/sets.py``.
        superseded_first: whether a checkpoint that a deeper one on the same unbranched
            path has replaced goes before everything else; if not set, the order of
            eviction decides, and under LRU it does.
        admission: what host memory takes: ``"all"``, or with ``"second-touch"`` only
            what an earlier prompt had too.
        chunk_tokens: tokens per chunk, and so the distance of resume points; if not
            set, the smallest that fits the model.
        blocks_per_chunk: the same as a multiple of the smallest chunk.
        min_load_tokens: fewer tokens than this are recomputed, not loaded.
        cost_rule: whether a load that is measured to take longer than recomputing is
            given up.
        max_load_tokens: most tokens loaded for one request; no limit if not set.
        max_store_tokens: tokens of a request beyond this are not stored; no limit if
            not set.
        store_decoded: whether generated tokens are stored as well as the prompt.
        decode_checkpoint_tokens: generated tokens between two checkpoints, rounded up
            to whole chunks; if not set, 256.
        spaced_checkpoint_share: bytes of the checkpoints inside a long prefill, as a
            share of the bytes of its chunks; 0 for no such checkpoints, as in lazy
            mode.
        lease_share: most host memory, as a share, that requests may keep by a lease.
        tenant_share: most host memory, as a share, that one tenant's requests may fill;
            no bound if not set.
        tenant_by: what names the tenant of a request; one of ``TENANT_NAMES``.
        share_replicated: whether ranks of one machine that hold the same bytes keep one
            copy in host memory: ``"auto"`` where the engine declares it and the machine
            allows it, ``"on"`` also for KV heads that ranks repeat, and then a start
            where nothing can be shared is refused, ``"off"`` never.
        dead_state: whether state that no resumed layer reads is left out, on the
            models for which that is proven.
        status_socket: whether the engine answers ``kvcellar why``, ``top`` and
            ``/kvcellar/status`` on a socket of this user's.
        allow_untested_vllm: whether a vLLM outside the tested range is served.
    """

    host_memory_bytes: int = DEFAULT_HOST_MEMORY_BYTES
    host_memory_bytes_per_rank: int | None = None
    mode: str = "eager"
    eviction_policy: str = "adaptive"
    placement: str = "geometric"
    superseded_first: bool | None = None
    admission: str = "all"
    chunk_tokens: int | None = None
    blocks_per_chunk: int | None = None
    min_load_tokens: int = 0
    cost_rule: bool = True
    max_load_tokens: int | None = None
    max_store_tokens: int | None = None
    store_decoded: bool = True
    decode_checkpoint_tokens: int | None = None
    spaced_checkpoint_share: float = DEFAULT_SPACED_SHARE
    lease_share: float = DEFAULT_LEASE_SHARE
    tenant_share: float | None = None
    tenant_by: str = "cache_salt"
    share_replicated: str = "auto"
    dead_state: bool = True
    status_socket: bool = True
    allow_untested_vllm: bool = False


@dataclass(frozen=True, slots=True)
class HostBudget:
    """Host memory that a server may take.

    Attributes:
        num_bytes: of all its ranks together, or of each.
        is_per_rank: whether each rank has that much.
    """

    num_bytes: int
    is_per_rank: bool = False


def host_budget(settings: Settings) -> HostBudget:
    """What the user gave: one memory for all ranks, or one for each."""
    if settings.host_memory_bytes_per_rank is not None:
        return HostBudget(settings.host_memory_bytes_per_rank, is_per_rank=True)
    return HostBudget(settings.host_memory_bytes)


def rank_bytes(settings: Settings, world_size: int) -> int:
    """Host memory of one of ``world_size`` ranks, in bytes."""
    if settings.host_memory_bytes_per_rank is not None:
        return settings.host_memory_bytes_per_rank
    return settings.host_memory_bytes // world_size


def describe_host_memory(
    settings: Settings, world_size: int, num_sharing: int = 1
) -> str:
    """The multiplication behind :func:`rank_bytes`, for the start-up log.

    Args:
        num_sharing: ranks that keep one copy of the same bytes.
    """
    per_rank = rank_bytes(settings, world_size)
    if num_sharing > 1:
        arena, count = per_rank * num_sharing, world_size // num_sharing
        return (
            f"{count} arena(s), each shared by {num_sharing} ranks that hold the same "
            f"bytes, x {arena} bytes ({arena / 2**30:.2f} GiB) = {count * arena} bytes "
            f"({count * arena / 2**30:.2f} GiB) of host memory"
        )
    return (
        f"{world_size} rank(s) x {per_rank} bytes ({per_rank / 2**30:.2f} GiB) = "
        f"{world_size * per_rank} bytes "
        f"({world_size * per_rank / 2**30:.2f} GiB) of host memory"
    )
