"""What came of a replay: tokens by source, bytes moved, waiting times."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """One configuration's result. ``device + host + computed = prompt`` tokens.

    Attributes:
        prompt_tokens: of all requests that were served.
        device_tokens: found on the device.
        host_tokens: loaded from host memory.
        stored_bytes: device to host.
        loaded_bytes: host to device.
        num_too_long: requests larger than the device cache, not served.
        ttft_seconds: per request, in the order of first tokens.
        busy_seconds: the device computed prompts.
        saved_seconds: prefill that hits made unnecessary, at the model's rate.
        counters: the planner's and index's own counters.
    """

    num_requests: int = 0
    num_too_long: int = 0
    prompt_tokens: int = 0
    device_tokens: int = 0
    host_tokens: int = 0
    stored_bytes: int = 0
    loaded_bytes: int = 0
    evicted_device_chunks: int = 0
    busy_seconds: float = 0.0
    saved_seconds: float = 0.0
    ttft_seconds: list[float] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    def found(self, num_tokens: int, device: int, host: int) -> None:
        """A request was admitted."""
        self.num_requests += 1
        self.prompt_tokens += num_tokens
        self.device_tokens += device
        self.host_tokens += host

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return self.prompt_tokens - self.device_tokens - self.host_tokens

    @property
    def hit_ratio(self) -> float:
        """Share of prompt tokens that were found anywhere."""
        hits = self.device_tokens + self.host_tokens
        return hits / self.prompt_tokens if self.prompt_tokens else 0.0

    def ttft_percentile(self, percent: float) -> float:
        """Nearest-rank percentile of the time to first token, in seconds."""
        ranked = sorted(self.ttft_seconds)
        if not ranked:
            return 0.0
        place = max(0, min(len(ranked) - 1, round(percent / 100 * len(ranked)) - 1))
        return ranked[place]
