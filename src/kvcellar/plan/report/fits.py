"""The table of what fits: device and host, per rank, per node, in total."""

from collections.abc import Iterator

from kvcellar.plan.figures import Figures
from kvcellar.plan.report.table import table
from kvcellar.plan.words import size

_Row = tuple[str, str, str, str, str, str]


def fits_title(figures: Figures) -> str:
    """What the columns count."""
    return (
        f"what fits: prompts of {figures.host.prompt_tokens:,} tokens, or only chunks "
        f"of {figures.units.chunk_tokens:,}, or only checkpoints"
    )


def fits(figures: Figures) -> Iterator[str]:
    """The table, and what is not in it."""
    heading = ("", "memory", "prompts", "or chunks", "or tokens", "or checkpoints")
    yield from table([heading, *_device_rows(figures), *_host_rows(figures)])
    if figures.device is None:
        yield (
            "device: unknown; add --device-memory SIZE, which the engine logs as "
            '"Available KV cache memory"'
        )
    yield "disk: not served by this release"


def _device_rows(figures: Figures) -> Iterator[_Row]:
    device, shape = figures.device, figures.shape
    if device is None:
        return
    prompts, tokens = device.num_prompts, device.num_tokens
    memory, times = device.memory_bytes, shape.data_parallel
    yield _device_row("device, each GPU", memory, prompts, tokens)
    if shape.num_ranks > 1:
        total = memory * shape.num_ranks
        yield _device_row("device, in total", total, prompts * times, tokens * times)


def _device_row(name: str, memory: int, prompts: int, tokens: int) -> _Row:
    return (name, size(memory), f"{prompts:,}", "", f"{tokens:,}", "")


def _host_rows(figures: Figures) -> Iterator[_Row]:
    host, shape = figures.host, figures.shape
    whose = f"per {host.num_sharing} ranks" if host.num_sharing > 1 else "per rank"
    yield _host_row(figures, f"host, {whose}", host.arena_bytes_per_rank, 1)
    if shape.ranks_per_server > 1:
        yield _host_row(figures, "host, per server", host.arena_bytes_per_server, 1)
    if shape.num_nodes > 1:
        servers, rest = divmod(shape.ranks_per_node, shape.ranks_per_server)
        num_servers = 0 if rest else servers
        node = host.arena_bytes_per_node
        yield _host_row(figures, "host, per node", node, num_servers)
    if shape.data_parallel > 1:
        total = host.arena_bytes_in_total
        yield _host_row(figures, "host, in total", total, shape.data_parallel)


def _host_row(figures: Figures, name: str, memory: int, num_servers: int) -> _Row:
    """One row.

    Args:
        num_servers: whole servers in that memory; 0 if it holds a part of one.
    """
    host = figures.host
    if not num_servers:
        return (name, size(memory), "a share of each", "", "", "")
    has_checkpoints = any(stage.checkpoint_bytes for stage in host.stages)
    checkpoints = host.num_checkpoints * num_servers
    return (
        name,
        size(memory),
        f"{host.num_prompts * num_servers:,}",
        f"{host.num_chunks * num_servers:,}",
        f"{host.chunk_tokens_total * num_servers:,}",
        f"{checkpoints:,}" if has_checkpoints else "none needed",
    )
