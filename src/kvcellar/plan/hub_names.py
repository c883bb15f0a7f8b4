"""What to write behind ``serve`` for a model of the catalogue."""

from pathlib import Path

# Source: the publishers' names on the model hub.
_HUB_NAMES = {
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v4-flash": "deepseek-ai/DeepSeek-V4-Flash",
    "gemma-3-12b": "google/gemma-3-12b-it",
    "gemma-3-270m": "google/gemma-3-270m-it",
    "gemma-3-27b": "google/gemma-3-27b-it",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B-Instruct",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "mistral-small": "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    "nemotron-h": "nvidia/Nemotron-H-8B-Base-8K",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-next": "Qwen/Qwen3-Next-80B-A3B-Instruct",
}


def servable_name(asked: str, catalogue_name: str) -> str:
    """A name or folder that the engine can load.

    Args:
        asked: what the user named: a folder, a file, a checkpoint or a short name.
        catalogue_name: the entry that was planned with.
    """
    path = Path(asked)
    if path.is_file():
        return str(path.parent)
    if path.exists() or "/" in asked:
        return asked
    return _HUB_NAMES.get(catalogue_name, asked)
