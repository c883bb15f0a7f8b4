import pytest

from kvcellar.serve.command import ServeSettings
from kvcellar.serve.environment import RESERVED_CPU, server_environment


@pytest.mark.parametrize(
    ("arguments", "cores"),
    [
        ((), "1"),
        (("--tensor-parallel-size", "2"), "2"),
        (("-tp", "2", "--pipeline-parallel-size=3"), "6"),
        (("-tp", "auto"), "1"),
    ],
)
def test_one_core_per_rank_is_kept_for_the_scheduler(
    arguments: tuple[str, ...], cores: str
):
    """As many cores are kept from the model as vLLM keeps without a connector."""
    settings = ServeSettings("m", 2**30, vllm_arguments=arguments)
    assert server_environment(settings, {"A": "b"}) == {RESERVED_CPU: cores, "A": "b"}


def test_the_users_own_number_of_cores_wins():
    """What is in the environment already stays."""
    settings = ServeSettings("m", 2**30)
    assert server_environment(settings, {RESERVED_CPU: "5"}) == {RESERVED_CPU: "5"}
