"""What goes from process to process survives that in a compiled build, too."""

import dataclasses
import typing

import pytest

from kvcellar.integrations.vllm.messages import (
    CellarMetadata,
    RankHandshake,
    WorkerReport,
)

COMPILED = ("kvcellar.attention.", "kvcellar.core.", "kvcellar.index.")


def parts(kind):
    """All dataclasses that one of this kind is made of, itself included."""
    found = {kind} if dataclasses.is_dataclass(kind) else set()
    hints = typing.get_type_hints(kind).values() if found else typing.get_args(kind)
    return found.union(*(parts(hint) for hint in hints))


@pytest.mark.parametrize("message", [CellarMetadata, WorkerReport, RankHandshake])
def test_no_part_of_a_message_is_of_a_module_that_can_be_compiled(message):
    """A frozen dataclass that is compiled cannot be unpickled."""
    assert message in parts(message)
    assert not [p for p in parts(message) if p.__module__.startswith(COMPILED)]
