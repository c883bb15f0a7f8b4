"""MessagePack values one after the other, and what is none."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.replay.readers.msgpack import MessagePackError, read_values

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=300),
        st.binary(max_size=300),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=20), st.dictionaries(st.text(), inner, max_size=20)
    ),
)


@given(st.lists(VALUES, max_size=4))
def test_values_one_after_the_other_are_what_was_encoded(values):
    """Whatever a real encoder writes comes back, in its order."""
    msgspec = pytest.importorskip("msgspec")
    data = b"".join(msgspec.msgpack.encode(value) for value in values)
    assert values == list(read_values(io.BytesIO(data)))


@pytest.mark.parametrize("length", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_all_lengths_are_read(length):
    """At each change of the encoding of lengths, for texts, bytes, lists and maps."""
    msgspec = pytest.importorskip("msgspec")
    for value in (
        "x" * length,
        b"x" * length,
        [1] * length,
        dict.fromkeys(range(length)),
    ):
        assert [value] == list(read_values(io.BytesIO(msgspec.msgpack.encode(value))))


@given(st.binary(max_size=40))
def test_any_bytes_are_values_or_a_clear_error(data):
    """Garbage never ends in anything but the decoder's error or that of bad text."""
    try:
        found = list(read_values(io.BytesIO(data)))
    except (MessagePackError, UnicodeDecodeError):
        return
    assert bool(found) == bool(data)


@pytest.mark.parametrize(
    "data",
    [b"\x91" * 100_000, b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xa5ab", b"\x81\x90\x01"],
)
def test_deep_unknown_and_cut_values_are_refused(data):
    """Nesting without end, lengths without content, keys that cannot be."""
    with pytest.raises(MessagePackError):
        list(read_values(io.BytesIO(data)))
