"""Whether this vLLM is one that kvcellar was tested with, asked at the start."""

import importlib
from typing import Any

import vllm
from vllm.logger import init_logger

from kvcellar.config import settings_from_extra_config
from kvcellar.errors import IncompatibleError
from kvcellar.versions import engine_problem

logger = init_logger("vllm.kvcellar")


def check_engine(extra_config: dict[str, Any]) -> None:
    """Refuse a vLLM outside the tested range, or warn if the settings allow it.

    Raises:
        ConfigError: a setting is unknown, or of the wrong type or range.
        IncompatibleError: the range, this version, and what to do.
    """
    settings = settings_from_extra_config(extra_config)
    problem = engine_problem(
        vllm.__version__, allows_untested=settings.allow_untested_vllm
    )
    if problem is None:
        return
    if problem.refuses:
        raise IncompatibleError(problem.sentence)
    logger.warning_once("kvcellar: %s", problem.sentence)


def import_connector() -> Any:
    """The connector's class; a vLLM that lacks what it is made of is told by version.

    Raises:
        IncompatibleError: this vLLM is too old or too new to be imported from.
    """
    name = "kvcellar.integrations.vllm.connector"
    try:
        return importlib.import_module(name).CellarConnector
    except ImportError as cause:
        problem = engine_problem(vllm.__version__)
        if problem is None:
            raise
        raise IncompatibleError(f"{problem.sentence} ({cause})") from cause
