"""The environment of the server process."""

from collections.abc import Mapping

from kvcellar.serve.arguments import option_value
from kvcellar.serve.command import ServeSettings

RESERVED_CPU = "VLLM_CPU_NUM_OF_RESERVED_CPU"
_RANK_OPTIONS = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
)


def server_environment(
    settings: ServeSettings, own: Mapping[str, str]
) -> dict[str, str]:
    """This process's environment, with as many CPU cores for the model as without us.

    On CPU vLLM keeps one core per rank for its scheduler and, with any KV connector,
    one more for a transfer library that kvcellar does not have. On a machine of two
    cores none would be kept, and a prefill took twice as long. So the number without a
    connector is asked for, unless the user has set one. Other platforms ignore it.
    Source: vLLM 0.32, utils/ompmultiprocessing.py, ``reserve_cpu_num``.
    """
    return {RESERVED_CPU: str(num_ranks_of(settings)), **own}


def num_ranks_of(settings: ServeSettings) -> int:
    """Ranks of one engine, by its tensor and pipeline arguments; 1 if not given."""
    num_ranks = 1
    for names in _RANK_OPTIONS:
        values = (option_value(settings.vllm_arguments, name) for name in names)
        given = next((value for value in values if value is not None), "1")
        num_ranks *= int(given) if given.isdecimal() else 1
    return num_ranks
