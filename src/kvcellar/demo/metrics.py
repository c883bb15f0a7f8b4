"""Reading counters from a server's ``/metrics``, in Prometheus' text format.

Source: Prometheus documentation, "Exposition formats", text-based format.
"""

import re
from dataclasses import dataclass

TRANSFER_BYTES = "kvcellar_transfer_bytes_sum"

# Source: vLLM 0.32, v1/metrics/stats.py, ``PromptTokenStats``; the three add up to all.
_TOKENS_BY_SOURCE = "vllm:prompt_tokens_by_source_total"

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a name, its labels and a number."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class TokenSources:
    """Where prompt tokens came from; the three add up to the prompts' lengths."""

    computed_tokens: int
    device_tokens: int
    host_tokens: int

    def __sub__(self, earlier: "TokenSources") -> "TokenSources":
        return TokenSources(
            self.computed_tokens - earlier.computed_tokens,
            self.device_tokens - earlier.device_tokens,
            self.host_tokens - earlier.host_tokens,
        )

    def __add__(self, other: "TokenSources") -> "TokenSources":
        return TokenSources(
            self.computed_tokens + other.computed_tokens,
            self.device_tokens + other.device_tokens,
            self.host_tokens + other.host_tokens,
        )


class Samples:
    """All samples of one moment."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def total(self, name: str, **labels: str) -> int | None:
        """The sum of all series of ``name`` with these labels; None if there are none.

        Exporters differ in whether they append ``_total``; both spellings are read.
        """
        values = [
            sample.value
            for sample in self._samples
            if sample.name.removesuffix("_total") == name.removesuffix("_total")
            and labels.items() <= sample.labels.items()
        ]
        return round(sum(values)) if values else None

    def labels_of(self, name: str) -> dict[str, str]:
        """Labels of the first series of ``name``; empty if there is none."""
        found = (sample.labels for sample in self._samples if sample.name == name)
        return next(found, {})

    def values_of(self, label: str) -> set[str]:
        """Values that a label has in any series."""
        return {
            sample.labels[label] for sample in self._samples if label in sample.labels
        }

    def token_sources(self) -> TokenSources:
        """Prompt tokens of all requests so far, by source."""
        return TokenSources(
            self.total(_TOKENS_BY_SOURCE, source="local_compute") or 0,
            self.total(_TOKENS_BY_SOURCE, source="local_cache_hit") or 0,
            self.total(_TOKENS_BY_SOURCE, source="external_kv_transfer") or 0,
        )


def parse_metrics(text: str) -> Samples:
    """Parse an exposition; comments and lines that are no samples are passed over."""
    samples = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, value = match.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        samples.append(Sample(name, dict(_LABEL.findall(labels or "")), number))
    return Samples(samples)
