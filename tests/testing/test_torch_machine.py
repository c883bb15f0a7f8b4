"""The GPU checks' model work, on the processor: the same PyTorch calls."""

import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from kvcellar.device.driver import DeviceError
from kvcellar.testing.gpu.machine import Span
from kvcellar.testing.gpu.torch_machine import TorchMachine, TorchWork


def work() -> TorchWork:
    return TorchWork(torch.device("cpu"), 64, longest_span=16, matrix_size=4)


def test_spans_are_filled_with_numbers_in_a_row() -> None:
    """From the first number on, also beyond 32 bits; nothing else changes."""
    machine = work()
    machine.write(Span(8, 16), 2**40)
    found = machine._view(Span(0, 64)).numpy()
    assert list(range(2**40, 2**40 + 16)) == found[8:24].tolist()
    assert 16 == np.count_nonzero(found)


def test_every_wrong_span_is_counted_once() -> None:
    """However many of its words are wrong; counting starts again after each answer."""
    machine = work()
    machine.write(Span(0, 4), 100)
    machine.compare(Span(0, 4), 100)
    machine.compare(Span(0, 3), 100)
    assert 0 == machine.num_wrong()
    machine.compare(Span(0, 4), 101)
    machine.compare(Span(4, 4), 104)
    assert (2, 0) == (machine.num_wrong(), machine.num_wrong())


def test_delay_touches_no_word() -> None:
    """It only takes time."""
    machine = work()
    machine.delay()
    assert not machine._view(Span(0, 64)).any()


def test_without_nvidias_library_the_checks_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence, before anything is allocated."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(
        "kvcellar.testing.gpu.torch_machine.open_libcuda", lambda device: None
    )
    with pytest.raises(DeviceError, match="need an NVIDIA GPU and its libcuda"):
        TorchMachine(64, 16)
