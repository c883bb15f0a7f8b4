"""What a running server tells over HTTP; it is only asked, never changed."""

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvcellar.demo.metrics import Samples, parse_metrics
from kvcellar.serve.no_answer import no_answer
from kvcellar.serve.server_url import server_url

_TIMEOUT_SECONDS = 10.0
_MAX_BYTES = 2**26
_INFO = "vllm:cache_config_info"
# A server's own address is asked directly, whatever proxies the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Server:
    """One moment of a server.

    Attributes:
        url: where it was asked.
        problem: why it did not answer; empty if it did.
        version: vLLM's version, as the server says.
        max_tokens_by_model: longest request by name of each model served.
        samples: its metrics; None if it has none.
        remedy: what to do if it did not answer.
    """

    url: str
    problem: str = ""
    version: str = ""
    max_tokens_by_model: Mapping[str, int] = field(default_factory=dict)
    samples: Samples | None = None
    remedy: str = ""

    def total(self, name: str, **labels: str) -> int | None:
        """A metric's sum over all engines; None if it is not there."""
        return None if self.samples is None else self.samples.total(name, **labels)

    def count(self, name: str, **labels: str) -> int:
        """A counter's sum over all engines; 0 if it is not there."""
        return self.total(name, **labels) or 0

    @property
    def num_engines(self) -> int:
        """Of a data-parallel server, or 1; 0 if no metric tells."""
        return 0 if self.samples is None else len(self.samples.values_of("engine"))

    @property
    def mean_prompt_tokens(self) -> int | None:
        """Mean length of the prompts so far; None if there were none.

        Source of the name: v1/metrics/loggers.py, vLLM 0.32.
        """
        num_prompts = self.count("vllm:request_prompt_tokens_count")
        total = self.count("vllm:request_prompt_tokens_sum")
        return round(total / num_prompts) if num_prompts else None

    @property
    def cache_settings(self) -> Mapping[str, str]:
        """The engine's own cache settings, by vLLM's names; empty if untold."""
        return {} if self.samples is None else self.samples.labels_of(_INFO)

    @property
    def has_kvcellar(self) -> bool:
        """Whether the server exports metrics of ours."""
        return self.total("kvcellar_host_capacity_bytes") is not None


def read_server(url: str) -> Server:
    """Ask a server for its version, models and metrics.

    Raises:
        ConfigError: it is not the URL of an HTTP server.
    """
    base = server_url(url)
    try:
        with contextlib.suppress(urllib.error.HTTPError):
            _get(f"{base}/health")
        return Server(
            base,
            version=_version(base),
            max_tokens_by_model=_models(base),
            samples=_samples(base),
        )
    except (OSError, http.client.HTTPException) as cause:
        silence = no_answer(base, cause)
        return Server(base, problem=silence.what, remedy=silence.remedy)


def _get(url: str) -> str:
    with _DIRECT.open(url, timeout=_TIMEOUT_SECONDS) as response:
        content: bytes = response.read(_MAX_BYTES)
    return content.decode("utf-8", errors="replace")


def _json(url: str) -> object:
    """What a path answers; None where the server does not have it."""
    try:
        return json.loads(_get(url))
    except (urllib.error.HTTPError, ValueError):
        return None


def _version(base: str) -> str:
    answer = _json(f"{base}/version")
    return str(answer.get("version", "")) if isinstance(answer, dict) else ""


def _models(base: str) -> dict[str, int]:
    """Longest request by model; adapters, which name no length, are left out."""
    answer = _json(f"{base}/v1/models")
    listed = answer.get("data") if isinstance(answer, dict) else None
    return {
        str(model["id"]): model["max_model_len"]
        for model in (listed if isinstance(listed, list) else [])
        if isinstance(model, dict) and isinstance(model.get("max_model_len"), int)
    }


def _samples(base: str) -> Samples | None:
    try:
        return parse_metrics(_get(f"{base}/metrics"))
    except urllib.error.HTTPError:
        return None
