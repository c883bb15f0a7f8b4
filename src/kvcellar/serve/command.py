"""The command line that starts vLLM's server with kvcellar as its KV connector."""

import json
import sys
from dataclasses import dataclass

CONNECTOR_NAME = "CellarConnector"
CONNECTOR_MODULE = "kvcellar.integrations.vllm"
STATUS_MIDDLEWARE = "kvcellar.integrations.vllm.endpoint.StatusEndpoint"


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What a user asked ``kvcellar serve`` for.

    Attributes:
        model: a local folder, or a name on the model hub.
        host_memory_bytes: host memory of the whole server, all ranks together; None
            starts vLLM without kvcellar, which the demo compares with.
        mode: when chunks are stored, such as ``"eager"``.
        vllm_arguments: handed to vLLM as they are.
        share_replicated: the connector's setting of that name; None leaves it out.
    """

    model: str
    host_memory_bytes: int | None
    mode: str = "eager"
    vllm_arguments: tuple[str, ...] = ()
    share_replicated: str | None = None


def extra_config(settings: ServeSettings) -> dict[str, object]:
    """The settings in the form the connector reads them."""
    extra: dict[str, object] = {"host_memory": settings.host_memory_bytes}
    extra["mode"] = settings.mode
    if settings.share_replicated is not None:
        extra["share_replicated"] = settings.share_replicated
    return extra


def transfer_config(settings: ServeSettings) -> dict[str, object]:
    """The value of ``--kv-transfer-config``.

    A failed load must end in a recompute of that request; vLLM's own default fails it.
    Source: vLLM 0.32, config/kv_transfer.py, ``KVTransferConfig``.
    """
    return {
        "kv_connector": CONNECTOR_NAME,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra_config(settings),
    }


def server_command(settings: ServeSettings) -> list[str]:
    """The program and arguments of the server process.

    The module is named rather than the ``vllm`` command: the latter asks for the
    metadata of a distribution called ``vllm``, which CPU builds do not have.
    """
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", settings.model]
    if settings.host_memory_bytes is not None:
        command += ["--kv-transfer-config", json.dumps(transfer_config(settings))]
        command += ["--middleware", STATUS_MIDDLEWARE]
    return [*command, *settings.vllm_arguments]
