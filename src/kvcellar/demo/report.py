"""The figures of one demo, as printed and as JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kvcellar.demo.exactness import Exactness, compare_returns
from kvcellar.demo.metrics import TokenSources
from kvcellar.demo.play import Played
from kvcellar.demo.script import CONTROL_OF, Kind

# A returning request may find a few tokens on the device even if its conversation was
# evicted: shared first blocks. More than this share means that it was not evicted.
_MAX_FOUND_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles of some requests' time to first token, in seconds."""

    num_requests: int
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One server's figures, by kind of request."""

    ttft: dict[str, Percentiles]
    prompt_tokens: dict[str, TokenSources]


@dataclass(frozen=True, slots=True)
class Speed:
    """How a kind of returning request compares, by p50 of time to first token."""

    times_faster_than_recomputing: float
    times_of_device_hit: float


@dataclass(frozen=True, slots=True)
class Eviction:
    """What returning requests found on the device of the server without kvcellar."""

    returning_requests: int
    requests_that_found_nothing: int
    prompt_tokens: int
    found_tokens: int


@dataclass(frozen=True, slots=True)
class Setting:
    """What was run."""

    model: str
    num_conversations: int
    block_tokens: int
    num_device_blocks: int
    host_memory_bytes: int
    mode: str
    seed: int
    num_ranks: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the demo found out; ``problems`` is empty if all is well."""

    setting: Setting
    without_kvcellar: RunFigures
    with_kvcellar: RunFigures
    speed: dict[str, Speed]
    stored_bytes: int | None
    loaded_bytes: int | None
    eviction: Eviction
    exactness: Exactness
    elapsed_seconds: float
    problems: tuple[str, ...]

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), indent=2)


def make_report(
    setting: Setting, bare: Played, cellar: Played, elapsed_seconds: float
) -> Report:
    """Work out all figures from what the two servers did."""
    eviction, exactness = _eviction(bare), compare_returns(cellar)
    return Report(
        setting=setting,
        without_kvcellar=_run_figures(bare),
        with_kvcellar=_run_figures(cellar),
        speed={kind.value: _speed(kind, bare, cellar) for kind in CONTROL_OF},
        stored_bytes=cellar.stored_bytes,
        loaded_bytes=cellar.loaded_bytes,
        eviction=eviction,
        exactness=exactness,
        elapsed_seconds=round(elapsed_seconds, 1),
        problems=tuple(_problems(cellar, eviction, exactness)),
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile: the smallest value that enough do not pass."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _ttft_seconds(played: Played, kind: Kind) -> list[float]:
    return [answer.completion.ttft_seconds for answer in played.of_kind(kind)]


def _run_figures(played: Played) -> RunFigures:
    ttft = {}
    for kind in played.sources:
        seconds = _ttft_seconds(played, kind)
        p50, p90, p99 = (percentile(seconds, percent) for percent in (50, 90, 99))
        ttft[kind.value] = Percentiles(len(seconds), p50, p90, p99)
    return RunFigures(
        ttft=ttft,
        prompt_tokens={kind.value: s for kind, s in played.sources.items()},
    )


def _speed(kind: Kind, bare: Played, cellar: Played) -> Speed:
    returning = percentile(_ttft_seconds(cellar, kind), 50)
    recomputing = percentile(_ttft_seconds(bare, kind), 50)
    device_hit = percentile(_ttft_seconds(cellar, CONTROL_OF[kind]), 50)
    return Speed(recomputing / returning, returning / device_hit)


def _eviction(bare: Played) -> Eviction:
    returned = [a.completion for kind in CONTROL_OF for a in bare.of_kind(kind)]
    return Eviction(
        returning_requests=len(returned),
        requests_that_found_nothing=sum(c.num_cached_tokens == 0 for c in returned),
        prompt_tokens=sum(c.num_prompt_tokens for c in returned),
        found_tokens=sum(c.num_cached_tokens for c in returned),
    )


def _problems(cellar: Played, eviction: Eviction, exactness: Exactness) -> list[str]:
    """Everything that makes the demo's claim untrue or unproven, in words."""
    controls = [cellar.sources[kind].host_tokens for kind in CONTROL_OF.values()]
    returns = [cellar.sources[kind].host_tokens for kind in CONTROL_OF]
    found = {
        f"{exactness.differing_tokens} of {exactness.compared_tokens} tokens and "
        f"{exactness.differing_logprobs} logprobs differ from a device hit": (
            exactness.differing_tokens or exactness.differing_logprobs
        ),
        "no returning request could be compared with a device hit of its length": (
            exactness.compared_requests == 0
        ),
        f"{eviction.found_tokens} of {eviction.prompt_tokens} returning tokens were "
        "still on the device, so little was evicted; give more --conversations": (
            eviction.found_tokens > _MAX_FOUND_SHARE * eviction.prompt_tokens
        ),
        f"{sum(controls)} tokens of the controls came from host memory, so they are "
        "no device hits": any(controls),
        "no token of the returning requests came from host memory": not any(returns),
        "the server does not count stored bytes": not cellar.stored_bytes,
        "the server does not count loaded bytes": not cellar.loaded_bytes,
    }
    return [problem for problem, is_so in found.items() if is_so]
