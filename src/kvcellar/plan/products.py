"""Every multiplication, written out, so that nobody has to guess what a size means."""

import itertools

from kvcellar.plan.device import DevicePlan
from kvcellar.plan.host import HostPlan
from kvcellar.plan.shape import ServerShape
from kvcellar.plan.words import count, size


def host_products(host: HostPlan, shape: ServerShape) -> tuple[str, ...]:
    """From one rank's memory to the total."""
    server = host.asked_bytes_per_server
    shares = _even_shares if host.are_ranks_even else _uneven_shares
    lines = [f"{shares(host, shape)} = {size(server)} of host memory per server"]
    if shape.data_parallel > 1:
        lines.append(
            f"{size(server)} x {count(shape.data_parallel, 'replica')} = "
            f"{size(server * shape.data_parallel)} in total, since each replica has "
            "its own"
        )
    if shape.num_nodes > 1:
        lines.append(_node_product(host, shape))
    return (*lines, *prompt_products(host))


def _even_shares(host: HostPlan, shape: ServerShape) -> str:
    ranks = count(shape.ranks_per_server, "rank")
    return f"{size(host.asked_bytes_per_rank)} x {ranks}"


def _uneven_shares(host: HostPlan, shape: ServerShape) -> str:
    """Neighbouring stages with equal shares together."""
    runs = [
        (share, len(list(stages)) * shape.tensor_parallel)
        for share, stages in itertools.groupby(host.asked_bytes_by_stage)
    ]
    return " + ".join(
        f"{size(share)} x {count(ranks, 'rank')}" for share, ranks in runs
    )


def _node_product(host: HostPlan, shape: ServerShape) -> str:
    if not host.are_ranks_even:
        return (
            f"at most {size(host.arena_bytes_per_node)} on each of {shape.num_nodes} "
            "nodes"
        )
    rank = host.asked_bytes_per_rank
    return (
        f"{size(rank)} x {count(shape.ranks_per_node, 'rank')} = "
        f"{size(rank * shape.ranks_per_node)} on each of {shape.num_nodes} nodes"
    )


def prompt_products(host: HostPlan) -> tuple[str, ...]:
    """What one prompt takes on a rank of each stage whose bytes differ."""
    whose = f"{host.num_sharing} ranks" if host.num_sharing > 1 else "rank"
    lines = []
    for stage in dict.fromkeys(host.stages):
        num_chunks = stage.prompt_tokens // stage.chunk_tokens
        tail = stage.prompt_bytes - num_chunks * stage.chunk_bytes
        checkpoint = f" + {size(tail)} of checkpoint" if tail else ""
        lines.append(
            f"{count(num_chunks, 'chunk')} x {size(stage.chunk_bytes)}{checkpoint} = "
            f"{size(stage.prompt_bytes)} per prompt and {whose}"
        )
    return tuple(lines)


def device_products(device: DevicePlan, shape: ServerShape) -> tuple[str, ...]:
    """From one GPU's blocks to all of them."""
    used = device.num_blocks * device.row_bytes
    lines = [
        f"{device.num_blocks:,} blocks x {size(device.row_bytes)} = {size(used)} of KV "
        "cache on each GPU"
    ]
    if shape.num_ranks > 1:
        total = device.memory_bytes * shape.num_ranks
        lines.append(
            f"{size(device.memory_bytes)} x {count(shape.num_ranks, 'GPU')} = "
            f"{size(total)} of KV cache in total"
        )
    return tuple(lines)
