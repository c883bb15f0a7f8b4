"""kvcellar as a KV connector of vLLM.

``kv_connector: CellarConnector`` with ``kv_connector_module_path:
kvcellar.integrations.vllm``.
"""

from kvcellar.integrations.vllm.connector import CellarConnector

__all__ = ["CellarConnector"]
