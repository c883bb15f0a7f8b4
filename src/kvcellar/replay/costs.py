"""How long things take: the only place of the replay that knows about speed.

The presets are assumptions, not measurements; a machine's own figures belong in a file
that ``kvcellar replay --costs`` reads.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostModel:
    """Speeds of one server.

    Attributes:
        prefill_tokens_per_second: computing prompts, one at a time.
        decode_seconds_per_token: between two tokens of one answer.
        load_bytes_per_second: host to device.
        store_bytes_per_second: device to host.
        step_seconds: fixed part of every prefill step.
    """

    prefill_tokens_per_second: float
    decode_seconds_per_token: float
    load_bytes_per_second: float
    store_bytes_per_second: float
    step_seconds: float = 0.0

    def prefill_seconds(self, num_tokens: int) -> float:
        """One prefill step of ``num_tokens``."""
        return self.step_seconds + num_tokens / self.prefill_tokens_per_second

    def load_seconds(self, num_bytes: int) -> float:
        """Copying ``num_bytes`` from the host."""
        return num_bytes / self.load_bytes_per_second

    def store_seconds(self, num_bytes: int) -> float:
        """Copying ``num_bytes`` to the host."""
        return num_bytes / self.store_bytes_per_second


NO_TIME = CostModel(
    prefill_tokens_per_second=float("inf"),
    decode_seconds_per_token=0.0,
    load_bytes_per_second=float("inf"),
    store_bytes_per_second=float("inf"),
)
"""Every request ends before the next one comes: hit ratios without queues."""
