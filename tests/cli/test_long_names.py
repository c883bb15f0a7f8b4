"""A name longer than any file's is a wrong name, not a failure of the system."""

import pytest

from kvcellar.cli.main import main
from kvcellar.layout.models.paths import is_there

LONG = "a" * 300
SIZES = ["--device-memory", "1GiB", "--host-memory", "1GiB"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plan", "--model", LONG], 2),
        (["replay", LONG, "--model", "llama-3.1-8b", *SIZES], 1),
        (["replay", "trace", "--model", LONG, *SIZES], 2),
        (["bench", "--model", LONG], 2),
        (["demo", "--model", LONG], 2),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_one_sentence_names_it(arguments, code, capsys):
    """Wherever a name is taken, as for other names that are wrong."""
    assert code == main(arguments)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("kvcellar: ")
    assert LONG in told


def test_the_doctor_takes_it_for_a_name_on_the_hub(capsys):
    """As it does with shorter ones that are not here."""
    main(["doctor", "--", LONG, "--host-memory", "1GiB"])
    assert "no figures for this model" in capsys.readouterr().out


def test_whether_something_is_there(tmp_path):
    """A folder, a file, nothing, and what can be nothing."""
    (tmp_path / "file").touch()
    assert is_there(tmp_path)
    assert is_there(tmp_path / "file")
    assert not is_there(tmp_path / "none")
    assert not is_there(tmp_path / LONG)
