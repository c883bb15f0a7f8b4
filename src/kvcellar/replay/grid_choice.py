"""How host memory is run: by kvcellar with its settings, or by one of vLLM's own."""

from dataclasses import dataclass

OURS = "kvcellar"
NATIVES = ("simple", "offloading")
SYSTEMS = (OURS, *NATIVES)


@dataclass(frozen=True, slots=True)
class Choice:
    """Who runs host memory, and how; all None where there is none.

    Attributes:
        system: ``"kvcellar"``, or vLLM's ``"simple"`` or ``"offloading"`` connector,
            which has none of the settings below.
        policy: eviction policy.
        placement: which boundaries get a checkpoint; None where the user has not
            chosen.
        admission: what host memory takes; the same.
        mode: eager or lazy.
    """

    system: str | None = None
    policy: str | None = None
    placement: str | None = None
    admission: str | None = None
    mode: str | None = None

    @property
    def is_native(self) -> bool:
        """Whether it is one of vLLM's own connectors."""
        return self.system in NATIVES

    def extra_config(self) -> dict[str, str | None]:
        """The settings under the names of kvcellar's connector."""
        optional = {"placement": self.placement, "admission": self.admission}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"eviction_policy": self.policy, "mode": self.mode, **given}
