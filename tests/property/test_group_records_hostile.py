"""Whatever bytes stand in the offsets topic, they are read or refused with INVALID_RECORD; nothing else happens."""

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import given

from moldau.broker.groups.offsets import CommittedOffset
from moldau.broker.groups.records import decode_group, decode_key, decode_offset, group_key, group_value, offset_key, offset_value
from moldau.broker.groups.states import GroupSnapshot, MemberState
from moldau.model.errors import ErrorCode, PeerError

int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
texts = st.text(max_size=40)
OFFSETS = st.builds(CommittedOffset, int64, int32, texts, int64, st.just(-1), st.binary(min_size=16, max_size=16), st.just(0))
EXPIRING = st.builds(CommittedOffset, int64, st.just(-1), texts, int64, st.integers(0, 2**63 - 1), st.just(bytes(16)), st.just(0))
MEMBERS = st.builds(MemberState, texts, st.none() | texts, texts, texts, int32, int32, st.binary(max_size=50), st.binary(max_size=50))
GROUPS = st.builds(GroupSnapshot, texts, int32, st.none() | texts, st.none() | texts, int64, st.lists(MEMBERS, max_size=3).map(tuple))


@given(OFFSETS | EXPIRING, GROUPS, texts, texts, int32)
def test_what_is_written_is_read(offset: CommittedOffset, group: GroupSnapshot, name: str, topic: str, partition: int) -> None:
    assert decode_offset(offset_value(offset), 0, {}) == offset
    assert decode_group(group_value(group)) == group
    assert decode_key(offset_key(name, topic, partition)) == (name, topic, partition)
    assert decode_key(group_key(name)) == (name,)


VALID = OFFSETS.map(offset_value) | EXPIRING.map(offset_value) | GROUPS.map(group_value) | st.builds(offset_key, texts, texts, int32)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Something valid with a few bytes changed, cut off, or nothing of the kind."""
    data = bytearray(draw(VALID | st.binary(max_size=80).map(bytes)))
    for position in draw(st.lists(st.integers(0, 79), max_size=4)):
        if position < len(data):
            data[position] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def outcome(read: Callable[[bytes], object], data: bytes) -> ErrorCode:
    """The code that reading ends with."""
    try:
        read(data)
    except PeerError as error:
        return error.code
    return ErrorCode.NONE


@given(damaged())
def test_anything_is_read_or_refused(data: bytes) -> None:
    for read in (decode_key, lambda value: decode_offset(value, 0, {}), decode_group):
        assert outcome(read, data) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
