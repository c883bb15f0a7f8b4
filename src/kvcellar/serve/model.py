"""Whether a model's path can be one; a hub name is looked up by vLLM itself."""

from pathlib import Path

from kvcellar.errors import ConfigError
from kvcellar.layout.models.paths import is_there


def model_problem(model: str) -> tuple[str, str] | None:
    """What is wrong with a model's path, and what to do; None if nothing is.

    Source of the file name: Hugging Face transformers, ``CONFIG_NAME``.
    """
    path = Path(model).expanduser()
    looks_local = model.startswith(("/", "./", "../", "~")) or model.count("/") > 1
    is_found = bool(model) and is_there(path)
    if is_found and path.is_dir():
        if not (path / "config.json").is_file():
            return (
                f"model={model!r} has no config.json",
                "give the folder that holds the model's config.json and weights",
            )
    elif is_found:
        if path.suffix != ".gguf":
            return f"model={model!r} is a file", "give the model's folder"
    elif looks_local or not model:
        return f"model={model!r} does not exist", "check the path"
    return None


def check_model(model: str) -> None:
    """Refuse a local folder without a model.

    Raises:
        ConfigError: the path does not exist, or is not a model's.
    """
    problem = model_problem(model)
    if problem is not None:
        raise ConfigError("; ".join(problem))
