"""KV-cache offload for vLLM, made for hybrid-attention models."""

import logging

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
