"""A process that is one of four ranks: two stages of two tensor ranks, no engine."""

import json
import sys
from types import SimpleNamespace

import torch.distributed

from kvcellar.integrations.vllm.exchange import GroupExchange

NUM_TENSOR, NUM_STAGES = 2, 2


def main(rank, store_path):
    """Form the groups that vLLM forms, exchange, print what was heard as JSON."""
    num_ranks = NUM_TENSOR * NUM_STAGES
    torch.distributed.init_process_group(
        "gloo",
        store=torch.distributed.FileStore(store_path, num_ranks),
        rank=rank,
        world_size=num_ranks,
    )
    tensor = [[0, 1], [2, 3]]
    pipeline = [[0, 2], [1, 3]]
    exchange = GroupExchange(own_group(rank, tensor), own_group(rank, pipeline))
    found = exchange.gather("who", f"rank {rank}")
    sys.stdout.write(json.dumps([exchange.rank, exchange.num_ranks, found]))
    torch.distributed.barrier()


def own_group(rank, groups):
    """The rank's group among these, as vLLM's coordinator shows it."""
    for ranks in groups:
        cpu_group = torch.distributed.new_group(ranks)
        if rank in ranks:
            own = SimpleNamespace(
                cpu_group=cpu_group,
                world_size=len(ranks),
                rank_in_group=ranks.index(rank),
            )
    return own


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
