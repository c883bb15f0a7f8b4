"""kvcellar as a KV connector of vLLM.

``kv_connector: CellarConnector`` with ``kv_connector_module_path:
kvcellar.integrations.vllm``. The class is imported when vLLM asks for it, so that the
translation of recorded configurations works where vLLM is not installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcellar.integrations.vllm.connector import CellarConnector

__all__ = ["CellarConnector"]


def __getattr__(name: str) -> Any:
    if name == "CellarConnector":
        from kvcellar.integrations.vllm.engine_version import import_connector

        return import_connector()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
