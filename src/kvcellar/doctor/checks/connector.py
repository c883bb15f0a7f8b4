"""Our connector's own configuration: is it on, and is what it is told right?"""

from collections.abc import Iterator, Mapping

from kvcellar.config import SETTING_KEYS
from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, ok, warning
from kvcellar.serve.command import CONNECTOR_MODULE, CONNECTOR_NAME

# Source: KVTransferConfig, config/kv_transfer.py, vLLM 0.32.
_FIELDS = frozenset(
    {
        "enable_permute_local_kv",
        "engine_id",
        "kv_buffer_device",
        "kv_connector",
        "kv_connector_extra_config",
        "kv_connector_module_path",
        "kv_load_failure_policy",
        "kv_port",
        "kv_role",
    }
)
_ROLES = ("kv_both", "kv_producer", "kv_consumer")


def find_connector(facts: Facts) -> Iterator[Finding]:
    """Whether the command switches kvcellar on, in a way that vLLM accepts."""
    if facts.configuration is None:
        return
    transfer = facts.configuration.transfer
    if transfer.problem:
        yield error(
            f"--kv-transfer-config={transfer.problem}",
            "vLLM cannot read it",
            "write one JSON object, in single quotes on a command line",
        )
    elif transfer.ours is None:
        yield warning(
            "nothing in this command switches kvcellar on",
            "vLLM then keeps prompts on the device only, or gives them to another "
            "connector",
            "use kvcellar serve MODEL --host-memory SIZE, or name "
            f"{CONNECTOR_NAME} in --kv-transfer-config",
        )
    else:
        found = list(_of_ours(transfer.ours))
        yield from found or [ok(f"{CONNECTOR_NAME} is the connector")]


def _of_ours(ours: Mapping[str, object]) -> Iterator[Finding]:
    wanted = {
        "kv_connector": CONNECTOR_NAME,
        "kv_connector_module_path": CONNECTOR_MODULE,
    }
    for key, value in wanted.items():
        if ours.get(key) != value:
            yield error(
                f"{key}={ours.get(key)!r} is not kvcellar's",
                "vLLM loads a connector by class and module together",
                f'write "{key}": "{value}"',
            )
    yield from _role(ours)
    extra = ours.get("kv_connector_extra_config", {})
    if not isinstance(extra, Mapping):
        yield error(
            f"kv_connector_extra_config={extra!r} is no object",
            "kvcellar's settings stand in it, by key",
            'write it like {"host_memory": "64GiB"}',
        )
    for key in sorted(set(map(str, ours)) - _FIELDS):
        yield _misplaced(key, ours[key])


def _role(ours: Mapping[str, object]) -> Iterator[Finding]:
    role = ours.get("kv_role")
    if role not in _ROLES:
        yield error(
            f"kv_role={role!r} cannot be used",
            "vLLM refuses a connector without a role",
            'write "kv_role": "kv_both"',
        )
    elif role != "kv_both":
        yield warning(
            f"kv_role={role!r} is half of what kvcellar does",
            "it both stores and loads, in one server",
            'write "kv_role": "kv_both"',
        )


def _misplaced(key: str, value: object) -> Finding:
    is_ours = key in SETTING_KEYS
    place = "inside kv_connector_extra_config" if is_ours else "there"
    return error(
        f"{key}={value!r} stands beside kv_connector, where vLLM knows no such key",
        f"it belongs {place}" if is_ours else "vLLM refuses keys that it does not know",
        f"move it {place}" if is_ours else "remove it, or mend its spelling",
    )


def find_settings(facts: Facts) -> Iterator[Finding]:
    """What the connector would refuse, or ignore."""
    if facts.configuration is None or facts.configuration.transfer.ours is None:
        return
    transfer = facts.configuration.transfer
    if transfer.refusal:
        what, _, advice = transfer.refusal.partition("; ")
        remedy = advice.partition(". known keys")[0]
        yield error(what, "the connector refuses to start with it", remedy)
        return
    extra = transfer.extra
    whole, ranks = (
        next((key for key in keys if key in extra), None)
        for keys in (
            ("host_memory", "cpu_bytes_to_use"),
            ("host_memory_per_rank", "cpu_bytes_to_use_per_rank"),
        )
    )
    if whole is not None and ranks is not None:
        yield warning(
            f"{whole}={extra[whole]!r} is ignored",
            f"{ranks}={extra[ranks]!r} is given, which wins as in vLLM's own connector",
            "keep one of them",
        )
    elif whole is None and ranks is None:
        yield warning(
            "host_memory is not given, so it is 8 GiB for the whole server",
            "a host memory smaller than the device cache adds little",
            'write "host_memory": "64GiB", or what the machine can spare',
        )
    else:
        yield ok(f"settings: {', '.join(f'{k}={v!r}' for k, v in extra.items())}")


def find_load_failure(facts: Facts) -> Iterator[Finding]:
    """What becomes of a request whose load fails.

    Source: ``kv_load_failure_policy``, config/kv_transfer.py, vLLM 0.32.
    """
    if facts.configuration is None or facts.configuration.transfer.ours is None:
        return
    transfer = facts.configuration.transfer
    assert transfer.content is not None
    policy = transfer.content.get("kv_load_failure_policy", "fail")
    if policy == "recompute":
        yield ok("a failed load is recomputed")
        return
    yield warning(
        f"kv_load_failure_policy is {policy!r}",
        "a copy that fails then fails its request, instead of costing a recompute",
        'write "kv_load_failure_policy": "recompute" beside kv_connector',
    )


CHECKS = (
    Check("connector", "is kvcellar switched on?", find_connector),
    Check("settings", "does it know every setting?", find_settings, refuses=True),
    Check("load-failure", "what becomes of a failed load?", find_load_failure),
)
