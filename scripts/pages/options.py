"""docs/options.md: the connector's settings, from the code that reads them."""

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator

from kvcellar.config import NOT_SERVED, Reader, Settings, keys_by_setting
from kvcellar.errors import ConfigError
from pages.markdown import origin, table

_HEAD = (
    "# Options",
    "",
    origin("`src/kvcellar/config/`"),
    "",
    "All go into `kv_connector_extra_config` of `--kv-transfer-config`:",
    "",
    "```",
    "vllm serve MODEL --kv-transfer-config '{",
    '    "kv_connector": "CellarConnector",',
    '    "kv_connector_module_path": "kvcellar.integrations.vllm",',
    '    "kv_role": "kv_both",',
    '    "kv_load_failure_policy": "recompute",',
    '    "kv_connector_extra_config": {"host_memory": "64GiB", "mode": "lazy"}',
    "  }' --middleware kvcellar.integrations.vllm.endpoint.StatusEndpoint",
    "```",
    "",
    "`kvcellar serve MODEL --host-memory 64GiB --mode lazy` writes that for you; these "
    "two are the settings it has options for.",
    "Settings of single requests: [per-request controls](requests.md).",
    "",
    "An unknown key, a wrong type, or two settings that contradict each other stop the "
    "start, with one line that names the key,",
    "the value and what to write. `kvcellar doctor -- vllm serve ...` says the same "
    "without a start.",
    "",
    "## Settings",
    "",
)

_DEFAULTS = (
    "",
    "By what figures the defaults were chosen: [benchmarks](benchmarks.md#defaults).",
    "",
    "## Names of vLLM's own connectors",
    "",
    "They mean what they mean there ([migration](migration.md)), and are read as "
    "strictly as ours.",
    "",
)

_REFUSED = (
    "",
    "## Refused by name",
    "",
    "These belong to vLLM's connectors and have no counterpart here. The start stops "
    "and says so, so that nobody believes them to be in effect:",
    "",
)

# Where a setting's row sends the reader on.
_MORE = {
    "mode": "[which suits](operate.md#eager-or-lazy)",
    "eviction_policy": "[why](benchmarks.md#defaults)",
    "placement": "[which is which](replay.md#placements)",
    "share_replicated": "[how](ranks.md#ranks-that-hold-the-same-bytes)",
    "lease_share": "[leases](requests.md)",
    "tenant_by": "[tenants](requests.md)",
    "status_socket": "[status](status.md)",
    "allow_untested_vllm": "[which vLLM](engines.md)",
}


def page() -> str:
    """The whole page."""
    refused = ", ".join(f"`{key}`" for key in sorted(NOT_SERVED))
    return "\n".join(
        (
            *_HEAD,
            *table(("key", "what it does", "write", "default"), _own_rows()),
            *_DEFAULTS,
            *table(("name", "here", "how its value is read"), _foreign_rows()),
            *_REFUSED,
            f"{refused}.",
            "",
        )
    )


def _own_rows() -> Iterator[tuple[str, ...]]:
    meanings = _meanings()
    for field in dataclasses.fields(Settings):
        key, read = next(iter(keys_by_setting()[field.name].items()))
        more = _MORE.get(key)
        meaning = meanings[field.name] + (f" ({more})" if more else "")
        default = _shown(field.name, field.default)
        yield f"`{key}`", meaning, _what_to_write(read), default


def _foreign_rows() -> Iterator[tuple[str, ...]]:
    for keys in keys_by_setting().values():
        (ours, read_ours), *twins = keys.items()
        for key, read in twins:
            yield f"`{key}`", f"`{ours}`", _translation(ours, read_ours, read)


def _translation(ours: str, read_ours: Reader, read: Reader) -> str:
    if read is read_ours or read.__qualname__ == read_ours.__qualname__:
        return _what_to_write(read)
    values = {word: json.dumps(read(word == "true", "")) for word in ("true", "false")}
    return "; ".join(f"{word}: `{ours}` {value}" for word, value in values.items())


def _what_to_write(read: Reader) -> str:
    """What the refusal of a wrong value tells the user to write instead."""
    try:
        read(object(), "key")
    except ConfigError as error:
        return str(error).partition("; write ")[2]
    raise AssertionError(f"{read} takes any value")


def _shown(setting: str, default: object) -> str:
    if default is None:
        return "not set"
    if setting.endswith("_bytes") and isinstance(default, int):
        return f'`"{default // 2**30}GiB"`'
    return f"`{json.dumps(default)}`"


def _meanings() -> dict[str, str]:
    """What the settings' docstring says of each, as Markdown."""
    text = inspect.getdoc(Settings) or ""
    _, _, attributes = text.partition("Attributes:\n")
    entries = re.split(r"^ {4}(\w+): ", attributes, flags=re.MULTILINE)[1:]
    pairs = zip(entries[::2], entries[1::2], strict=True)
    return {name: _as_markdown(words) for name, words in pairs}


def _as_markdown(words: str) -> str:
    flat = re.sub(r"; one of ``[A-Z_]+``[^.]*(\.py``)?", "", " ".join(words.split()))
    return flat.replace("``", "`").rstrip(".")
