"""The options of ``kvcellar replay``, as a table; ``replay.options`` reads them."""

from typing import NamedTuple

COST_OPTIONS = {
    "prefill_tokens_per_second": "computing prompts",
    "decode_seconds_per_token": "between two tokens of an answer",
    "load_bytes_per_second": "host to device, each GPU",
    "store_bytes_per_second": "device to host, each GPU",
    "step_seconds": "fixed part of each prefill step",
}
GPU_NAMES = ("a100", "b200", "h100", "h200", "l40s")
"""A test compares both with what they are read by."""


class Option(NamedTuple):
    """One option that takes a value; a default is shown behind its meaning."""

    name: str
    metavar: str
    meaning: str
    value_type: type[str] | type[int] | type[float] = str
    default: str | int | float | None = None
    is_required: bool = False


GRID = (
    Option(
        "model",
        "NAME",
        "a model of the catalogue, or a config.json or its folder",
        is_required=True,
    ),
    Option(
        "device-memory",
        "SIZE,...",
        "KV cache memory of each GPU; 0 is a device that keeps nothing",
        is_required=True,
    ),
    Option(
        "host-memory",
        "SIZE,...",
        "host memory of the whole server; 0 is none, the engine alone",
        is_required=True,
    ),
    Option(
        "system",
        "NAME,...",
        "kvcellar, and models of vLLM's own connectors, simple and offloading, which "
        "have none of the choices below",
        default="kvcellar",
    ),
    Option(
        "policy", "NAME,...", "eviction policies of host memory", default="adaptive"
    ),
    Option(
        "placement",
        "NAME,...",
        "which boundaries get a checkpoint (default: as the connector)",
    ),
    Option("mode", "MODE,...", "eager, lazy or both", default="eager"),
    Option(
        "admission",
        "NAME,...",
        "what host memory takes (default: as the connector)",
    ),
)

GROUPS: dict[str, tuple[Option, ...]] = {
    "engine": (
        Option("tensor-parallel", "N", "GPUs that share each layer", int, 1),
        Option("cache-dtype", "NAME", "as --kv-cache-dtype", default="auto"),
        Option("block-tokens", "N", "as --block-size", int),
        Option("max-num-seqs", "N", "requests that run at once", int, 256),
        Option(
            "step-tokens",
            "N",
            "most prompt tokens of a step, as --max-num-batched-tokens",
            int,
            8192,
        ),
    ),
    "trace": (
        Option("format", "NAME", "format of the trace (default: recognised)"),
        Option("tokenizer", "NAME", "for texts (default: a byte is a token)"),
        Option(
            "trace-block-tokens",
            "N",
            "tokens per id of the trace, where its format leaves that open; or a "
            "multiple of what it says: faster, and resumed at fewer places",
            int,
        ),
        Option("limit", "N", "play the first N requests only", int),
    ),
    "arrivals": (
        Option("speed", "X", "let requests arrive so many times as fast", float, 1.0),
        Option(
            "jitter",
            "SECONDS",
            "spread requests that share a time stamp, such as 3 for Mooncake's traces",
            float,
        ),
        Option("seed", "S", "of the jitter", int, 0),
        Option(
            "sessions-per-second",
            "X",
            "how sessions start where the trace has no common clock",
            float,
            0.05,
        ),
        Option("max-gap", "SECONDS", "longest pause in such a session", float, 60.0),
    ),
    "speed": (
        Option(
            "gpu",
            "NAME",
            f"assume the speeds of {', '.join(GPU_NAMES)} (default: h100)",
        ),
        Option(
            "active-parameters",
            "X",
            "parameters that a token uses, such as 8e9, for models that are not known",
            float,
        ),
        Option(
            "costs",
            "FILE",
            "JSON object of measured speeds, names as below; kvcellar bench writes it",
        ),
        *(
            Option(name.replace("_", "-"), "X", meaning, float)
            for name, meaning in COST_OPTIONS.items()
        ),
    ),
    "output": (
        Option("output", "DIR", "write replay.csv, replay.json and replay.html there"),
        Option("processes", "N", "how many at once (default: one per core)", int),
    ),
}

SWITCHES = {
    "skip-bad": "leave out records that cannot be read",
    "no-time": "nothing takes time: hits without waiting",
    "json": "print the figures as one JSON object",
}
