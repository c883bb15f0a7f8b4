"""The planted faults (``mutations.py``) are faults of the sources as they are."""

from collections import Counter
from pathlib import Path

import pytest
from faults import FAULTS

SOURCES = Path(__file__).parents[1] / "src" / "kvcellar"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_in_just_one_place(fault):
    """Else it would prove nothing that the tests fail with it."""
    assert 1 == (SOURCES / fault.file).read_text().count(fault.old)
    assert fault.new != fault.old


def test_no_two_faults_have_one_name():
    """One is chosen by it."""
    assert 1 == max(Counter(fault.name for fault in FAULTS).values())
