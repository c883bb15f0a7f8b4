"""The demo's server: a real process, started as ``kvcellar serve`` does it."""

import contextlib
import http.client
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from kvcellar.demo.client import Client
from kvcellar.demo.target import SERVED_NAME
from kvcellar.errors import CellarError
from kvcellar.serve.address import address_of, is_healthy
from kvcellar.serve.command import ServeSettings, server_command
from kvcellar.serve.environment import num_ranks_of, server_environment
from kvcellar.serve.no_answer import no_answer
from kvcellar.serve.preflight import check_settings
from kvcellar.serve.process import ServerProcess

BOUND_CPUS = "VLLM_CPU_OMP_THREADS_BIND"
_READY_TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.2
_NUM_LOG_LINES = 12
_ERROR_LINE = re.compile(r"^(?!.*(?:WARNING|INFO) ).*\b[A-Z]\w*(?:Error|Exception): ")
_MAX_TEMPORARY_PATH = 107 - len("/") - len(str(uuid.UUID(int=0)))


@contextlib.contextmanager
def running_engine(
    settings: ServeSettings, log: Path, on_wait: Callable[[float], None]
) -> Iterator[Client]:
    """A server that answers, for as long as the ``with`` block lasts.

    Args:
        settings: what to start.
        log: file for all the server says.
        on_wait: called with the seconds waited so far, until the server answers.

    Raises:
        CellarError: the server did not start, or failed later; with its last words.
    """
    check_settings(settings)
    address = address_of(settings.vllm_arguments)
    environment = _environment(settings, log.parent)
    with (
        log.open("wb") as output,
        ServerProcess(server_command(settings), environment, output) as server,
    ):
        started = time.monotonic()
        while not is_healthy(address):
            waited_seconds = time.monotonic() - started
            status = server.wait(_POLL_SECONDS)
            if status is not None or waited_seconds > _READY_TIMEOUT_SECONDS:
                raise CellarError(_failure("did not start", status, log))
            on_wait(waited_seconds)
        try:
            yield Client(address, SERVED_NAME)
        except (OSError, http.client.HTTPException, CellarError) as error:
            status = server.wait(_POLL_SECONDS)
            is_ours = isinstance(error, CellarError)
            why = str(error) if is_ours else no_answer(address.url, error).reason
            what = f"did not answer as it should ({why})"
            raise CellarError(_failure(what, status, log)) from error


def _environment(settings: ServeSettings, folder: Path) -> dict[str, str]:
    """A small CPU cache, nothing sent out, no compiler, leftovers in our own folder.

    With eager execution only a helper of the sampler would be compiled: 20 seconds of
    the first request, for nothing that the demo measures. vLLM makes its sockets in the
    temporary folder, and their paths may have no more than 107 characters (unix(7)).
    """
    num_ranks = num_ranks_of(settings)
    is_short = len(str(folder)) <= _MAX_TEMPORARY_PATH
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        **({BOUND_CPUS: _cpus_by_rank(num_ranks)} if num_ranks > 1 else {}),
        **server_environment(settings, os.environ),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        **({"TMPDIR": str(folder)} if is_short else {}),
    }


def _cpus_by_rank(num_ranks: int) -> str:
    """This machine's processors dealt out among ranks, such as ``"0,2|1,3"``.

    By itself vLLM wants a NUMA node for each rank.
    Source: vLLM 0.32, utils/ompmultiprocessing.py, ``_parse_omp_threads_bind_env``.
    """
    cpus = sorted(os.sched_getaffinity(0))
    shares = (cpus[rank::num_ranks] or cpus for rank in range(num_ranks))
    return "|".join(",".join(map(str, share)) for share in shares)


def _failure(what: str, status: int | None, log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line]
    ended = "it still runs" if status is None else f"exit status {status}"
    message = [f"the server {what}, {ended}; use --keep-logs to keep its whole log"]
    # A root cause comes first and is followed by what it has broken in other processes.
    causes = [line for line in lines if _ERROR_LINE.search(line)][:1]
    message += ["its first error:", *causes] if causes else []
    return "\n  ".join([*message, "its last lines:", *lines[-_NUM_LOG_LINES:]])
