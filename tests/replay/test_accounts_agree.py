"""The planner's accounts against the replay's own, which remembers every prompt."""

import pytest
from layouts import LAYOUTS
from replay_grids import conversations

from kvcellar.config import Settings
from kvcellar.replay.configuration import Configuration
from kvcellar.replay.costs import CostModel
from kvcellar.replay.grid_cell import play
from kvcellar.replay.grid_misses import Reason
from kvcellar.replay.host import HostSide
from kvcellar.replay.server import ServerLimits

COSTS = CostModel(1000.0, 0.02, 1e6, 1e6, 0.01)
LIMITS = ServerLimits(max_num_seqs=16, step_tokens=64)
SAME = {
    Reason.NO_CHECKPOINT: "no_checkpoint",
    Reason.STORING: "storing",
    Reason.NEVER_SEEN: "never_seen",
    Reason.PARTIAL: "last_boundary",
}


def played(monkeypatch, layout, rows, settings):
    """What the replay counts, and the ledger of the planner inside."""
    hosts, init = [], HostSide.__init__

    def noted_init(self, *args):
        init(self, *args)
        hosts.append(self)

    monkeypatch.setattr(HostSide, "__init__", noted_init)
    configuration = Configuration(layout, rows, settings, COSTS, LIMITS)
    one = play(conversations(120), configuration, on_request=list)
    return one, hosts[-1].planner.ledger


@pytest.mark.parametrize("host_bytes", [20_000, 50_000, 10**7])
@pytest.mark.parametrize("name", ["full", "full-long-chunks", "gemma", "llama4"])
def test_host_only_accounts_are_those_of_the_replay(monkeypatch, name, host_bytes):
    """Sources and reasons are equal; what the replay calls evicted the planner tells
    apart: evicted, not let in, no room, or being computed again by another request."""
    settings = Settings(host_memory_bytes=host_bytes)
    one, ledger = played(monkeypatch, LAYOUTS[name], None, settings)
    assert 0 == ledger.device_tokens
    assert one.outcome.host_tokens == ledger.host_tokens
    assert one.outcome.computed_tokens == ledger.computed_tokens
    for theirs, ours in SAME.items():
        assert one.missed_tokens[theirs] == ledger.missed_tokens[ours], ours
    rest = {"evicted", "outranked", "no_room", "no_block", "in_progress"}
    others = sum(one.missed_tokens[r] for r in (Reason.EVICTED, Reason.IN_PROGRESS))
    assert others == sum(ledger.missed_tokens[name] for name in rest)


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["full", "gemma"])
def test_with_a_device_new_tokens_are_those_of_the_replay(monkeypatch, name, mode):
    """Device, host and computed tokens, and what was never seen, are equal."""
    settings = Settings(host_memory_bytes=50_000, mode=mode)
    one, ledger = played(monkeypatch, LAYOUTS[name], 800, settings)
    assert one.outcome.device_tokens == ledger.device_tokens > 0
    assert one.outcome.host_tokens == ledger.host_tokens > 0
    assert one.outcome.computed_tokens == ledger.computed_tokens
    for reason in (Reason.NEVER_SEEN, Reason.PARTIAL):
        assert one.missed_tokens[reason] == ledger.missed_tokens[SAME[reason]]
