"""What the one rank of a benchmark tells the scheduler's half at the start."""

from kvcellar.config import Settings
from kvcellar.integrations.vllm.messages import RankFacts, RankHandshake
from kvcellar.integrations.vllm.ranks import plan_server


def told_by_one_rank(facts: RankFacts, settings: Settings) -> RankHandshake:
    """As a worker tells it once its cache is registered."""
    plan = plan_server([facts], settings, ranks_per_stage=1)
    return RankHandshake(0, settings, (facts,), plan.geometry.ranks[0])
