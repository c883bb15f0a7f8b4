"""What a trace format must provide to be read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kvcellar.errors import ConfigError
from kvcellar.replay.readers.arrivals import Arrivals
from kvcellar.replay.readers.record import Record
from kvcellar.replay.trace import TraceRequest


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What the user wants of a reader.

    Attributes:
        block_tokens: tokens per prefix id; None takes the format's own. A multiple of
            what a trace states joins its blocks: fewer places at which prompts can be
            told apart, and that much less to play.
        tokenizer: name or folder of a tokenizer for text; None counts bytes as tokens.
        arrivals: what to assume about arrival times.
    """

    block_tokens: int | None = None
    tokenizer: str | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)

    def __post_init__(self) -> None:
        """Refuse block sizes that cannot be.

        Raises:
            ConfigError: the block size is not above zero.
        """
        if self.block_tokens is not None and self.block_tokens <= 0:
            raise ConfigError(
                f"block_tokens is {self.block_tokens}, expected a number above zero"
            )

    def accept_block_tokens(self, recorded: int) -> int:
        """Take the block size that a trace states about itself.

        Raises:
            ConfigError: the user asked for one which the ids cannot give.
        """
        if self.block_tokens is not None and self.block_tokens % recorded:
            raise ConfigError(
                f"block_tokens is {self.block_tokens}, but the trace was recorded with "
                f"blocks of {recorded} tokens: leave it out, or give a multiple"
            )
        return recorded

    def num_joined(self, recorded: int) -> int:
        """How many blocks of a trace, accepted before, are played as one."""
        return 1 if self.block_tokens is None else self.block_tokens // recorded


class FormatReader(Protocol):
    """Turns the records of one format into requests; made anew for each trace.

    Attributes:
        block_tokens: tokens per prefix id; final once all records are read.
        is_absolute: whether arrival times count from some clock's zero.
    """

    block_tokens: int
    is_absolute: bool

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Turn one record into its requests, of any number.

        Raises:
            TraceError: the record is not what the format says. The reader can go on
                with the next one unless the error is fatal.
        """
        ...

    def finish(self) -> Iterable[TraceRequest]:
        """Give the requests that only the end of the trace completes."""
        ...
