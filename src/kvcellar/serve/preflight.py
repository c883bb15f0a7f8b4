"""Checks that refuse a hopeless start in one sentence, before vLLM is started."""

import importlib.util
import logging
from pathlib import Path

from kvcellar.config import settings_from_extra_config
from kvcellar.errors import ConfigError
from kvcellar.serve.address import address_of, is_free
from kvcellar.serve.arguments import has_option
from kvcellar.serve.command import ServeSettings, extra_config

logger = logging.getLogger(__name__)

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_MEMORY_INFO = Path("/proc/meminfo")


def check_settings(settings: ServeSettings) -> None:
    """Refuse settings that vLLM or the connector could only fail on.

    Raises:
        ConfigError: the first thing that is wrong, and what to do about it.
    """
    _check_engine()
    _check_host_memory(settings)
    check_model(settings.model)
    _check_vllm_arguments(settings)
    address = address_of(settings.vllm_arguments)
    if not is_free(address):
        raise ConfigError(
            f"port={address.port} is already in use on "
            f"{address.host or 'this machine'}; give another one with --port"
        )


def machine_memory_bytes() -> int:
    """Memory this process may use: the machine's, or its control group's if smaller."""
    limits = [_memory_info_bytes("MemTotal")]
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # "max" means no limit
            limits.append(int(text))
    return min(limits)


def _memory_info_bytes(field: str) -> int:
    for line in _MEMORY_INFO.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024  # the file counts in kB of 1024 bytes
    raise ConfigError(f"{_MEMORY_INFO} has no {field}; kvcellar needs Linux")


def _check_engine() -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "vllm is not installed in this Python; install it, for instance with "
            "pip install 'kvcellar[vllm]'"
        )


def _check_host_memory(settings: ServeSettings) -> None:
    num_bytes = settings.host_memory_bytes
    if num_bytes is None:
        return
    settings_from_extra_config(extra_config(settings))
    machine_bytes = machine_memory_bytes()
    if num_bytes > machine_bytes:
        raise ConfigError(
            f"host_memory={num_bytes} bytes ({num_bytes / 2**30:.1f} GiB) is more than "
            f"the {machine_bytes / 2**30:.1f} GiB of this machine; give less"
        )
    available_bytes = _memory_info_bytes("MemAvailable")
    if num_bytes > available_bytes:
        logger.warning(
            "host_memory is %.1f GiB but only %.1f GiB are available now; the machine "
            "may run out of memory as the cache fills",
            *(num_bytes / 2**30, available_bytes / 2**30),
        )


def check_model(model: str) -> None:
    """Refuse a local folder without a model; a hub name is looked up by vLLM itself.

    Source of the file name: Hugging Face transformers, ``CONFIG_NAME``.

    Raises:
        ConfigError: the path does not exist, or is not a model's.
    """
    path = Path(model).expanduser()
    looks_local = model.startswith(("/", "./", "../", "~")) or model.count("/") > 1
    if model and path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(
                f"model={model!r} has no config.json; give the folder that holds the "
                "model's config.json and weights"
            )
    elif model and path.exists():
        if path.suffix != ".gguf":
            raise ConfigError(f"model={model!r} is a file; give the model's folder")
    elif looks_local or not model:
        raise ConfigError(f"model={model!r} does not exist; check the path")


def _check_vllm_arguments(settings: ServeSettings) -> None:
    reasons = {"--model": "the model is the first argument of serve; leave --model out"}
    if settings.host_memory_bytes is not None:
        reasons |= {
            "--no-enable-prefix-caching": "kvcellar finds prompts by vLLM's prefix "
            "hashes and cannot work without them; leave it out",
            "--kv-transfer-config": "serve writes this option itself; leave it out, or "
            "start vLLM directly with your own",
            "--kv-offloading-size": "it would switch on vLLM's own offloading beside "
            "kvcellar; use --host-memory instead",
        }
    for name, reason in reasons.items():
        if has_option(settings.vllm_arguments, name):
            raise ConfigError(f"{name} cannot be given: {reason}")
