"""Connectors beside ours, behind vLLM's ``MultiConnector``."""

from collections.abc import Iterator, Mapping

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, note, ok, warning
from kvcellar.doctor.transfer import extra_of, name_of

# Source: kv_connector/factory.py, vLLM 0.32.
_HOST_TIERS = frozenset({"OffloadingConnector", "SimpleCPUOffloadConnector"})
_CACHE_SERVERS = frozenset({"LMCacheConnectorV1", "LMCacheMPConnector"})
_FOLDER_WORDS = ("disk_path", "root_dir", "local_disk", "shared_storage_path", "path")


def find_several(facts: Facts) -> Iterator[Finding]:
    """Who else stores, and who is asked first."""
    configuration = facts.configuration
    if configuration is None or configuration.transfer.ours is None:
        return
    others = configuration.transfer.others
    if not others:
        yield ok("no other connector beside it")
    for other in others:
        name = name_of(other)
        if name in _HOST_TIERS:
            yield warning(
                f"{name} keeps evicted cache in host memory too",
                "both store the same bytes, and only the first to find a prompt loads",
                f"keep one of them; kvcellar reads {name}'s settings by their names",
            )
        else:
            yield note(
                f"{name} stands beside kvcellar",
                "the first connector that finds a prompt loads it; kvcellar stores "
                "what the other brings once it has arrived",
                "put first the one whose answer should win",
            )


def find_cache_server(facts: Facts) -> Iterator[Finding]:
    """A cache server's workers, which must be as many as ranks."""
    configuration = facts.configuration
    if configuration is None:
        return
    names = [name_of(c) for c in configuration.transfer.connectors]
    served = [name for name in names if name in _CACHE_SERVERS]
    if not served:
        if configuration.transfer.ours is not None:
            yield ok("no cache server: each rank copies for itself")
        return
    num_ranks = configuration.num_ranks * configuration.num_replicas
    yield (note if num_ranks == 1 else warning)(
        f"{served[0]} asks a cache server on behalf of {num_ranks} rank(s)",
        "a server with fewer workers than ranks answers some of them too late, and the "
        "hit rate is 0 without an error",
        f"start the cache server with at least {num_ranks} worker(s); kvcellar alone "
        "needs no server",
    )


def find_folders(facts: Facts) -> Iterator[Finding]:
    """Folders that outlive the server, and what their content depends on."""
    configuration = facts.configuration
    if configuration is None:
        return
    folders = sorted(
        {
            folder
            for connector in configuration.transfer.others
            for folder in _folders(extra_of(connector))
        }
    )
    if not folders and configuration.transfer.ours is not None:
        yield ok("nothing is kept on disk, so no folder can be shared by mistake")
    if folders:
        inputs = (
            f"model={configuration.model}, "
            f"revision={configuration.value('--revision') or 'default'}, "
            f"kv-cache-dtype={configuration.value('--kv-cache-dtype') or 'auto'}, "
            f"block-size={configuration.value('--block-size') or 'default'}, "
            f"ranks={configuration.tensor_parallel}x{configuration.pipeline_parallel}"
        )
        yield note(
            f"{', '.join(folders)} outlives the server",
            f"its content is right for these settings only: {inputs}",
            "use another folder when one of them changes, and remove the old one",
        )


def _folders(extra: Mapping[str, object]) -> Iterator[str]:
    for key, value in extra.items():
        if isinstance(value, Mapping):
            yield from _folders(value)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, Mapping):
                    yield from _folders(one)
        elif isinstance(value, str) and key.rpartition(".")[2] in _FOLDER_WORDS:
            yield value


CHECKS = (
    Check("other-connectors", "does another connector store too?", find_several),
    Check("cache-server", "has a cache server enough workers?", find_cache_server),
    Check("folders", "does a folder outlive its settings?", find_folders),
)
