"""Speeds that are assumed where nobody has measured: published figures, and shares.

    prefill   GPUs x peak x 0.5 / (2 x active parameters)          tokens per second
    decode    5 ms + 2 bytes x active parameters / (GPUs x memory x 0.6)   per token
    copies    0.8 x the link, in each direction                    bytes per second
    step      5 ms for every prefill step, whatever its length

The shares are our assumptions, and so is what the formulas leave out: attention's own
work, which grows with the prompt; experts that only large batches touch; quantisation.
"""

from dataclasses import dataclass

from kvcellar.errors import ConfigError
from kvcellar.layout.models.catalogue import catalogue_name
from kvcellar.replay.costs import CostModel

DEFAULT_GPU = "h100"
COMPUTE_SHARE = 0.5
MEMORY_SHARE = 0.6
LINK_SHARE = 0.8
STEP_SECONDS = 0.005
_FLOPS_PER_PARAMETER = 2  # one multiplication and one addition
_BYTES_PER_PARAMETER = 2  # bfloat16


@dataclass(frozen=True, slots=True)
class Gpu:
    """Published figures of one GPU.

    Attributes:
        flops_per_second: dense bfloat16 peak, without sparsity.
        memory_bytes_per_second: of its own memory.
        link_bytes_per_second: PCIe, in each direction.
    """

    flops_per_second: float
    memory_bytes_per_second: float
    link_bytes_per_second: float


_PCIE_4, _PCIE_5 = 31.5e9, 63e9  # 16 lanes

GPUS = {
    "a100": Gpu(312e12, 2.04e12, _PCIE_4),
    "b200": Gpu(2250e12, 8.0e12, _PCIE_5),
    "h100": Gpu(989e12, 3.35e12, _PCIE_5),
    "h200": Gpu(989e12, 4.8e12, _PCIE_5),
    "l40s": Gpu(362e12, 0.864e12, _PCIE_4),
}
"""Source: NVIDIA's data sheets of the 80 GB SXM A100, HGX B200, H100 and H200 SXM, and
L40S; PCI Express 4.0 and 5.0."""

ACTIVE_PARAMETERS = {
    "deepseek-v3": 37e9,
    "deepseek-v4-flash": 13e9,
    "gemma-3-12b": 12e9,
    "gemma-3-270m": 0.27e9,
    "gemma-3-27b": 27e9,
    "gpt-oss-120b": 5.1e9,
    "gpt-oss-20b": 3.6e9,
    "llama-3.1-70b": 70.6e9,
    "llama-3.1-8b": 8e9,
    "llama-4-maverick": 17e9,
    "llama-4-scout": 17e9,
    "mistral-small": 24e9,
    "nemotron-h": 8.1e9,
    "qwen3-32b": 32.8e9,
    "qwen3-next": 3e9,
}
"""Parameters that one token uses. Source: the models' cards."""


def gpu_named(name: str) -> Gpu:
    """The figures of a GPU.

    Raises:
        ConfigError: there is no such preset.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise ConfigError(
            f"gpu={name!r} has no preset; use one of {', '.join(GPUS)}, or give "
            "measured speeds with --costs"
        )
    return gpu


def active_parameters(model_name: str) -> float | None:
    """Parameters that one token of a known model uses; None if it is not known."""
    known = catalogue_name(model_name)
    return None if known is None else ACTIVE_PARAMETERS.get(known)


def preset_costs(gpu: Gpu, num_parameters: float, num_gpus: int) -> CostModel:
    """Assumed speeds of a server; copies are those of each GPU.

    Args:
        num_parameters: that one token uses.
        num_gpus: that share each layer.
    """
    flops_per_token = _FLOPS_PER_PARAMETER * num_parameters
    weight_bytes = _BYTES_PER_PARAMETER * num_parameters
    memory = num_gpus * gpu.memory_bytes_per_second * MEMORY_SHARE
    link = gpu.link_bytes_per_second * LINK_SHARE
    return CostModel(
        prefill_tokens_per_second=num_gpus
        * gpu.flops_per_second
        * COMPUTE_SHARE
        / flops_per_token,
        decode_seconds_per_token=STEP_SECONDS + weight_bytes / memory,
        load_bytes_per_second=link,
        store_bytes_per_second=link,
        step_seconds=STEP_SECONDS,
    )
