"""Arguments that cannot work, whoever reads them first."""

from collections.abc import Iterator

from kvcellar.config import SETTING_KEYS
from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, ok, warning
from kvcellar.doctor.numbers import NUMBER_OPTIONS, NumberOption, wrong_number
from kvcellar.errors import ConfigError
from kvcellar.serve.address import address_of, is_free
from kvcellar.serve.model import model_problem

SHARED_NAMES = frozenset({"block_size"})
"""Keys of ours that are vLLM's options too, with another meaning."""

_WRITTEN_BY_SERVE = {
    "--model": (
        "the model is the first argument of serve",
        "leave --model out",
    ),
    "--kv-transfer-config": (
        "serve writes this option itself",
        "leave it out, or start vLLM directly with your own",
    ),
}
_OFFLOADING = "--kv-offloading-size"


def find_model(facts: Facts) -> Iterator[Finding]:
    """A model's folder; names of the hub are vLLM's own matter."""
    configuration = facts.configuration
    if configuration is None:
        return
    if configuration.model is None:
        if configuration.is_by_serve or configuration.arguments:
            yield warning(
                "no model is given",
                "the cache's layout, and all figures that follow from it, are unknown",
                "give it first, before the options",
            )
        return
    problem = model_problem(configuration.model)
    if problem is None:
        yield ok(f"model={configuration.model}")
    else:
        yield error(problem[0], "vLLM could only fail on it", problem[1])


def find_options(facts: Facts) -> Iterator[Finding]:
    """Options that undo or double what kvcellar does, or that vLLM does not have."""
    configuration = facts.configuration
    if configuration is None:
        return
    if configuration.is_by_serve:
        for name, (why, remedy) in _WRITTEN_BY_SERVE.items():
            is_bare = configuration.transfer.content is None and name != "--model"
            if configuration.has(name) and not is_bare:
                yield error(f"{name} cannot be given", why, remedy)
    if configuration.transfer.content is not None and configuration.has(_OFFLOADING):
        yield error(
            f"{_OFFLOADING} cannot be given",
            "vLLM would put its own offloading in the place of kvcellar",
            "leave it out; host memory is set by --host-memory or host_memory",
        )
    for key in sorted(SETTING_KEYS - SHARED_NAMES):
        option = f"--{key.replace('_', '-')}"
        if any(
            word.partition("=")[0].replace("_", "-") == option
            for word in configuration.arguments
        ):
            yield error(
                f"{option}={configuration.value(option)} is no option of vLLM",
                f"{key} is a setting of kvcellar's connector",
                f'write it into kv_connector_extra_config, as "{key}"',
            )
    if configuration.unread_file:
        yield warning(
            configuration.unread_file,
            "options in it could not be checked",
            "give a YAML file of options, or the options themselves",
        )


def find_numbers(facts: Facts) -> Iterator[Finding]:
    """Options whose value must be a whole number."""
    configuration = facts.configuration
    if configuration is None:
        return
    for option in NUMBER_OPTIONS:
        wrong = wrong_number(configuration.arguments, option)
        if wrong is not None:
            yield error(
                f"{option.names[0]}={wrong} cannot be used",
                "sizes and shares are worked out from it",
                _number_wanted(option),
            )


def _number_wanted(option: NumberOption) -> str:
    example = ' or such as "32k"' if option.has_suffixes else ""
    return f"give a whole number of at least {option.smallest}{example}"


def find_address(facts: Facts) -> Iterator[Finding]:
    """The port that the server would listen on."""
    configuration = facts.configuration
    if configuration is None or facts.server is not None or configuration.has("--uds"):
        return
    try:
        address = address_of(configuration.arguments)
        is_usable = is_free(address)
    except ConfigError as cause:
        what, _, remedy = str(cause).partition("; ")
        yield error(what, "the server has to listen somewhere", remedy)
        return
    if is_usable:
        yield ok(f"port {address.port} is free")
        return
    yield error(
        f"port={address.port} is already in use on {address.host or 'this machine'}",
        "two servers cannot listen on one port",
        "give another one with --port",
    )


CHECKS = (
    Check("model", "is there a model?", find_model, refuses=True),
    Check("options", "do options contradict kvcellar?", find_options, refuses=True),
    Check("numbers", "are numbers whole and possible?", find_numbers, refuses=True),
    Check("address", "is the port free?", find_address, refuses=True),
)
