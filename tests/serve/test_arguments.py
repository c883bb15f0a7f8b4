import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.serve.arguments import has_option, option_value


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ([], None),
        (["--port", "1"], "1"),
        (["--port=2"], "2"),
        (["--port=2", "--port", "3"], "3"),
        (["--portal", "4"], None),
        (["--port"], None),
        (["--port="], ""),
    ],
)
def test_last_value_of_an_option_is_found(arguments: list[str], value: str | None):
    """Both spellings of a value are read, and the last one counts."""
    assert option_value(arguments, "--port") == value


@given(st.text("abc-_", min_size=1, max_size=12))
def test_underscores_and_dashes_are_the_same(name: str):
    """An option is found in either spelling, as vLLM's parser does."""
    dashed = "--" + name.replace("_", "-")
    assert has_option([f"--{name}=1"], dashed)
    assert option_value([f"--{name}", "x_y"], dashed) == "x_y"
