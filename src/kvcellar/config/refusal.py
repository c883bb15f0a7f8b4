"""The one sentence for a value that cannot be used."""

from kvcellar.errors import ConfigError


def refusal(key: str, value: object, advice: str) -> ConfigError:
    """Key, value and what to do."""
    return ConfigError(f"{key}={value!r} cannot be used; {advice}")
