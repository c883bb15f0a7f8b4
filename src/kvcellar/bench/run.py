"""From what a user asks of ``kvcellar bench`` to its result."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass

from kvcellar.bench.copies import CACHE_BYTES, measure_copies
from kvcellar.bench.host_memory import measure_host_memory
from kvcellar.bench.planner import measure_planner
from kvcellar.bench.result import BenchResult, ServedModel
from kvcellar.bench.serving import ServingSpeed, measure_serving, prompt_lengths
from kvcellar.demo.client import Client
from kvcellar.device.trial import NUM_LAYERS, device_problem
from kvcellar.errors import CellarError, ConfigError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.models import model_layout
from kvcellar.layout.units import format_bytes
from kvcellar.serve.address import address_of_url
from kvcellar.serve.no_answer import no_answer

OnStage = Callable[[str], None]
_MIN_BLOCKS = 8  # of the largest page, so that there is something to choose from


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What is to be measured.

    Attributes:
        model: of the catalogue, or a config.json; its pages and planning.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for the GPU if there is one.
        page_bytes: sizes to measure besides the model's own.
        server_url: None asks no server.
        prompt_tokens: lengths of the server's prompts; None chooses.
    """

    model: str
    device: str
    page_bytes: tuple[int, ...]
    server_url: str | None = None
    prompt_tokens: tuple[int, ...] | None = None


def run_bench(request: BenchRequest, on_stage: OnStage) -> BenchResult:
    """Measure; the server first, while nothing else has warmed the machine.

    Raises:
        CellarError: something cannot be measured, with the reason.
    """
    model = model_layout(request.model)
    page_bytes = _page_bytes(model.layout)
    sizes = sorted({*request.page_bytes, page_bytes})
    _check_sizes(sizes)
    kind = _device_kind(request.device)
    server = serving = None
    if request.server_url is not None:
        server, serving = _ask_server(request, request.server_url, on_stage)
    copies = measure_copies(
        kind,
        sizes,
        lambda size: on_stage(f"copying pages of {format_bytes(size)} ({kind})"),
    )
    on_stage("filling host memory")
    host_memory = measure_host_memory()
    on_stage("planning stores and look-ups")
    planner = measure_planner(model.layout)
    return BenchResult(
        model.name, page_bytes, copies, host_memory, planner, server, serving
    )


def _page_bytes(layout: CacheLayout) -> int:
    """A page of the append-only group with the largest blocks."""
    groups = [layout.groups[position] for position in layout.chunk_positions]
    largest = max(groups, key=lambda group: group.payload_bytes)
    return largest.payload_bytes // largest.num_layers


def _check_sizes(sizes: list[int]) -> None:
    most = CACHE_BYTES // (NUM_LAYERS * _MIN_BLOCKS)
    for size in (sizes[0], sizes[-1]):
        if not 1 <= size <= most:
            raise ConfigError(
                f"page_bytes={size} cannot be measured; give sizes up to "
                f"{format_bytes(most)}"
            )


def _device_kind(name: str) -> str:
    if name == "auto":
        return "cpu" if device_problem("cuda") else "cuda"
    problem = device_problem(name)
    if problem is not None:
        raise ConfigError(f"device={name!r} cannot be measured: {problem}")
    return name


def _ask_server(
    request: BenchRequest, url: str, on_stage: OnStage
) -> tuple[ServedModel, ServingSpeed]:
    address = address_of_url(url)
    try:
        found = Client(address, "").models()[0]
        name, most = str(found["id"]), int(found["max_model_len"])
        lengths = prompt_lengths(request.prompt_tokens, most)
        serving = measure_serving(
            Client(address, name),
            lengths,
            most,
            lambda length: on_stage(f"prompts of {length:,} tokens on {name}"),
        )
    except (OSError, http.client.HTTPException) as error:
        raise no_answer(address.url, error) from error
    except (LookupError, TypeError, ValueError) as error:
        raise CellarError(
            f"server={url!r} does not answer as vLLM does; name a running vLLM server"
        ) from error
    return ServedModel(address.url, name, most), serving
