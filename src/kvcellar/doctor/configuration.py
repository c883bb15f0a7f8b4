"""What a server would be started with, as far as kvcellar depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvcellar.config import Settings
from kvcellar.doctor.numbers import read_number
from kvcellar.doctor.transfer import Transfer
from kvcellar.serve.arguments import has_option, option_value
from kvcellar.serve.command import ServeSettings, transfer_config

# Source: SpeculativeConfig.use_eagle, config/speculative.py, vLLM 0.32.
_DRAFTERS_IN_CACHE = ("eagle", "mtp", "dflash", "dspark")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A server's configuration; nothing in it need be right.

    Attributes:
        model: a folder, a name, or None if none is given.
        arguments: vLLM's, those of a ``--config`` file included.
        transfer: what ``--kv-transfer-config`` says, ours or the user's.
        is_by_serve: whether ``kvcellar serve`` starts it and writes ``transfer``.
        unread_file: a ``--config`` file that could not be read, and why.
        device_memory_bytes: KV cache memory of each device, if the user says so.
        prompt_tokens: length of a usual prompt, if the user says so.
    """

    model: str | None = None
    arguments: tuple[str, ...] = ()
    transfer: Transfer = field(default_factory=Transfer)
    is_by_serve: bool = False
    unread_file: str = ""
    device_memory_bytes: int | None = None
    prompt_tokens: int | None = None

    @property
    def settings(self) -> Settings | None:
        """Our connector's settings; None if it is not used or they are refused."""
        return self.transfer.settings

    def has(self, name: str) -> bool:
        """Whether an option is among vLLM's arguments."""
        return has_option(self.arguments, name)

    def value(self, *names: str) -> str | None:
        """An option's value as it stands."""
        return option_value(self.arguments, *names)

    def number(self, name: str) -> int | None:
        """A number option's value; None where it is absent or wrong."""
        return read_number(self.arguments, name)

    @property
    def has_drafter(self) -> bool:
        """Whether speculative decoding uses a drafter whose layers are in the cache."""
        text = self.value("--speculative-config", "-sc") or ""
        return any(word in text.lower() for word in _DRAFTERS_IN_CACHE)

    @property
    def tensor_parallel(self) -> int:
        """Ranks that share each layer."""
        return self.number("--tensor-parallel-size") or 1

    @property
    def pipeline_parallel(self) -> int:
        """Stages that share out the layers."""
        return self.number("--pipeline-parallel-size") or 1

    @property
    def num_ranks(self) -> int:
        """Ranks of one replica, which share its host memory."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def num_nodes(self) -> int:
        """Machines that one replica spans."""
        return self.number("--nnodes") or 1

    @property
    def num_replicas(self) -> int:
        """Replicas of the model, on all machines."""
        return self.number("--data-parallel-size") or 1

    @property
    def num_local_replicas(self) -> int:
        """Replicas on this machine."""
        local = self.number("--data-parallel-size-local")
        return max(self.num_replicas if local is None else local, 1)

    @property
    def num_local_ranks(self) -> int:
        """Ranks on this machine, of all its replicas."""
        return max(self.num_ranks // self.num_nodes, 1) * self.num_local_replicas


def configuration_of(
    settings: ServeSettings, arguments: Sequence[str]
) -> Configuration:
    """What ``kvcellar serve`` would start.

    Args:
        settings: what it was asked for.
        arguments: vLLM's, with those of a ``--config`` file.
    """
    is_on = settings.host_memory_bytes is not None
    return Configuration(
        model=settings.model,
        arguments=tuple(arguments),
        transfer=Transfer(transfer_config(settings) if is_on else None),
        is_by_serve=True,
    )
