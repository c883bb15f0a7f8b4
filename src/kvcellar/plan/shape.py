"""How ranks are spread: what "per rank", "per node" and "in total" multiply by.

server   one engine: tensor x pipeline ranks; ``host_memory`` is the whole server's
replica  a server of its own, with a host memory of its own
node     a machine; all ranks of all replicas are dealt out evenly
"""

from dataclasses import dataclass

from kvcellar.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerShape:
    """Numbers of ranks, replicas and nodes.

    Attributes:
        tensor_parallel: ranks that share each layer.
        pipeline_parallel: stages that share out the layers.
        data_parallel: replicas, each a server with a host memory of its own.
        num_nodes: machines.

    Raises:
        ConfigError: a number is not positive, or the ranks do not spread evenly.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    num_nodes: int = 1

    def __post_init__(self) -> None:
        for name, value in (
            ("tensor_parallel", self.tensor_parallel),
            ("pipeline_parallel", self.pipeline_parallel),
            ("data_parallel", self.data_parallel),
            ("nodes", self.num_nodes),
        ):
            if value < 1:
                raise ConfigError(f"{name}={value} is not possible; use 1 or more")
        if self.num_ranks % self.num_nodes:
            raise ConfigError(
                f"nodes={self.num_nodes} cannot share {self.num_ranks} ranks evenly; "
                f"use a divisor of {self.num_ranks}"
            )

    @property
    def ranks_per_server(self) -> int:
        """Ranks of one engine."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def num_ranks(self) -> int:
        """Ranks of all replicas."""
        return self.ranks_per_server * self.data_parallel

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each machine."""
        return self.num_ranks // self.num_nodes
