"""How the ranks of one engine tell each other what they found, at start.

Workers allocate before the scheduler has heard of any of them, so they ask each other:
every rank hands in a value under a name and gets everybody's, in rank order.

    pipeline stage 0   [ rank 0 | rank 1 ]     rank = stage * tensor ranks + its place
    pipeline stage 1   [ rank 2 | rank 3 ]

``gather`` waits for all ranks, so all must call it with the same names in the same
order; a rank that cannot go on says so in it, by ``gather_or_refuse``, instead of
staying away. Not for the serving path.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch.distributed

from kvcellar.errors import CellarError, IncompatibleError

T = TypeVar("T")


class Exchange(Protocol):
    """A way to the other ranks of this engine replica.

    Attributes:
        rank: this rank's number.
        num_ranks: ranks of the replica.
    """

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        ...

    @property
    def num_ranks(self) -> int:
        """Ranks of the replica, this one included."""
        ...

    def gather(self, name: str, value: T) -> list[T]:
        """Everybody's value under ``name``, in rank order; waits for all ranks.

        Args:
            value: small, and made of plain things that can be pickled.

        Raises:
            IncompatibleError: ranks have asked for different names.
        """
        ...


class AloneExchange:
    """The only rank there is."""

    rank = 0
    num_ranks = 1

    def gather(self, name: str, value: T) -> list[T]:
        """Its own value."""
        del name
        return [value]


class GroupExchange:
    """Ranks in vLLM's process groups, over the groups' connections between processors.

    First the tensor ranks of each stage, then the stages: together that is every rank
    of this replica and none of another one, which vLLM's world group would be too.
    Source: GroupCoordinator in distributed/parallel_state.py, vLLM 0.32.

    Args:
        tensor: the group of this rank's pipeline stage.
        pipeline: the group of this rank's place in all stages.
    """

    def __init__(self, tensor: Any, pipeline: Any) -> None:
        self._groups = (tensor, pipeline)
        self.rank: int = (
            pipeline.rank_in_group * tensor.world_size + tensor.rank_in_group
        )
        self.num_ranks: int = pipeline.world_size * tensor.world_size

    def gather(self, name: str, value: T) -> list[T]:
        """See ``Exchange``."""
        stage = _all_gather(self._groups[0], (name, value))
        stages = _all_gather(self._groups[1], stage)
        found = [pair for one in stages for pair in one]
        return values_under(name, found)


def open_exchange(parallel_config: Any) -> Exchange:
    """The way to the other ranks, in a worker whose process groups are there."""
    if parallel_config.world_size == 1:
        return AloneExchange()
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return GroupExchange(get_tp_group(), get_pp_group())


def values_under(name: str, found: list[tuple[str, T]]) -> list[T]:
    """The values, if all were handed in under one name.

    Raises:
        IncompatibleError: they were not.
    """
    for rank, (other, _) in enumerate(found):
        if other != name:
            raise IncompatibleError(
                f"rank {rank} exchanges {other!r} and another one {name!r}; start all "
                "ranks with the same kvcellar and settings"
            )
    return [value for _, value in found]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a rank that cannot go on hands in."""

    reason: str


def gather_or_refuse(exchange: Exchange, name: str, make: Callable[[], T]) -> list[T]:
    """Make a value on every rank and gather them; if one cannot, none goes on.

    A rank that raised before the others had gathered would leave them waiting.

    Raises:
        CellarError: as ``make`` on this rank.
        IncompatibleError: another rank could not make its value; says which and why.
    """
    try:
        own: T | _Refusal = make()
    except CellarError as cause:
        exchange.gather(name, _Refusal(str(cause)))
        raise
    found: list[T] = []
    for rank, value in enumerate(exchange.gather(name, own)):
        if isinstance(value, _Refusal):
            raise IncompatibleError(f"rank {rank} cannot start: {value.reason}")
        found.append(value)
    return found


def _all_gather(group: Any, value: Any) -> list[Any]:
    if group.world_size == 1:
        return [value]
    found: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, value, group=group.cpu_group)
    return found
