"""Environment variables that change what a server can do."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, note, ok, warning

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_ALLOCATOR_NEW = "PYTORCH_ALLOC_CONF"  # of newer torch; vLLM 0.32 does not look at it
_EXPANDABLE = "expandable_segments:True"
_ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
_SEED = "PYTHONHASHSEED"


def find_allocator(facts: Facts) -> Iterator[Finding]:
    """Expandable segments, which vLLM refuses beside any connector.

    Source: ``_verify_kv_transfer_compat``, config/vllm.py, vLLM 0.32: it looks for this
    very text, whatever the platform, and lets the cumem allocator pass.
    """
    configuration = facts.configuration
    if configuration is None or configuration.transfer.content is None:
        return
    old = facts.software.environment.get(_ALLOCATOR, "")
    new = facts.software.environment.get(_ALLOCATOR_NEW, "")
    has_own_pool = any(
        configuration.has(name)
        for name in ("--enable-sleep-mode", "--enable-cumem-allocator")
    )
    if _EXPANDABLE in old and not has_own_pool:
        yield error(
            f"{_ALLOCATOR}={old!r} is set",
            "vLLM refuses expandable segments beside a KV connector, since registered "
            "memory may move",
            "unset it, or keep the cache out of it with --enable-cumem-allocator",
        )
    elif _EXPANDABLE in new and not has_own_pool:
        yield note(
            f"{_ALLOCATOR_NEW}={new!r} is set",
            "vLLM does not look at this newer name, so it does not refuse it; kvcellar "
            "registers no device memory and is not hurt, RDMA connectors are",
            "add --enable-cumem-allocator if another connector registers memory",
        )
    else:
        yield ok("the allocator's segments stay where they are")


def find_hash(facts: Facts) -> Iterator[Finding]:
    """Prefix hashes that differ in each process.

    Source: ``resolve_none_hash_seed``, v1/core/kv_cache_utils.py, vLLM 0.32.
    """
    configuration = facts.configuration
    if configuration is None:
        return
    algorithm = configuration.value("--prefix-caching-hash-algo") or "sha256"
    seed = facts.software.environment.get(_SEED)
    if algorithm not in _ALGORITHMS:
        yield error(
            f"--prefix-caching-hash-algo {algorithm} is not known to vLLM",
            "the server would refuse it",
            f"use one of {', '.join(_ALGORITHMS)}",
        )
    elif algorithm.startswith("xxhash") and seed is None:
        yield warning(
            f"--prefix-caching-hash-algo {algorithm} without {_SEED}",
            "each process then starts its hashes from a random root, so keys of a "
            "restarted server or a second replica never match",
            f"set {_SEED} to the same value everywhere, or use sha256",
        )
    elif seed is not None:
        yield ok(f"prefix hashes: {algorithm}, {_SEED}={seed}")
    else:
        yield ok(f"prefix hashes: {algorithm}, the same in every process")


def find_reset(facts: Facts) -> Iterator[Finding]:
    """The reset endpoint, which leaves host memory alone unless told otherwise.

    Source: entrypoints/serve/dev/cache/api_router.py, vLLM 0.32.
    """
    switch = facts.software.environment.get("VLLM_SERVER_DEV_MODE", "")
    if not switch.isdecimal() or not int(switch):
        return
    yield note(
        f"VLLM_SERVER_DEV_MODE={switch} offers POST /reset_prefix_cache",
        "a plain reset empties the device and leaves host memory warm, and a reply of "
        '200 may say "success": false while copies run',
        "add ?reset_external=true, read the reply, and ask again until it is true",
    )


CHECKS = (
    Check("allocator", "does the allocator move memory?", find_allocator, refuses=True),
    Check("hash", "are prefix hashes the same in every process?", find_hash),
    Check("reset", "what does a reset of the cache reach?", find_reset),
)
