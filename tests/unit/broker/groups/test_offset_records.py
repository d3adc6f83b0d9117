"""The records of the offsets topic, byte by byte as Kafka writes them; those that nobody can understand are refused, whatever they hold.

The bytes are Kafka 4.3's own (`GroupCoordinatorRecordHelpers` and the serializers it uses).
"""

import struct

import pytest

from moldau.broker.groups.offsets import NO_TOPIC_ID, CommittedOffset
from moldau.broker.groups.records import (
    GroupKey,
    OffsetKey,
    UnknownKey,
    decode_group,
    decode_key,
    decode_offset,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from moldau.broker.groups.states import GroupSnapshot, MemberState
from moldau.model.errors import ErrorCode, PeerError

TOPIC_ID = bytes(range(16))
WITH_ALL = CommittedOffset(258, 3, "mé", 1_700_000_000_000, -1, TOPIC_ID, 0)


def text(value: str) -> bytes:
    return struct.pack(">H", len(value.encode())) + value.encode()


# Keys


def test_keys_are_kafkas() -> None:
    assert offset_key("grp", "tpc", 7) == b"\0\1" + b"\0\3grp" + b"\0\3tpc" + b"\0\0\0\7"
    assert group_key("grp") == b"\0\2" + b"\0\3grp"


@pytest.mark.parametrize("version", [0, 1])
def test_an_offset_has_a_key_of_either_version(version: int) -> None:
    assert decode_key(struct.pack(">h", version) + offset_key("g", "t", 3)[2:]) == OffsetKey("g", "t", 3)


def test_keys_of_groups_and_of_newer_things() -> None:
    assert decode_key(group_key("")) == GroupKey("")
    assert decode_key(b"\0\3\0\1g") == UnknownKey(3)
    assert decode_key(b"\0\x15") == UnknownKey(21)
    assert decode_key(b"\xff\xff\0\0") == UnknownKey(-1)


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\0",
        b"\0\1",
        b"\0\1\0\5g",
        b"\0\1\xff\xff",
        b"\0\2\0\1gx",
        b"\0\2\0\1\xff",
        offset_key("g", "t", 0)[:-1],
        b"\0\2\xff\xff",
    ],
)
def test_malformed_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(PeerError) as caught:
        decode_key(key)
    assert caught.value.code is ErrorCode.INVALID_RECORD


# Values of offsets


def test_an_offset_is_written_as_version_4_with_its_topics_id() -> None:
    head = b"\0\4" + struct.pack(">qi", 258, 3) + b"\4m\xc3\xa9" + struct.pack(">q", 1_700_000_000_000)
    assert offset_value(WITH_ALL) == head + b"\1\0\x10" + TOPIC_ID
    assert offset_value(WITH_ALL._replace(topic_id=NO_TOPIC_ID)) == head + b"\0"


def test_one_with_a_time_of_expiry_is_written_as_version_1() -> None:
    value = offset_value(WITH_ALL._replace(expire_timestamp_ms=5))
    assert value == b"\0\1" + struct.pack(">q", 258) + text("mé") + struct.pack(">qq", 1_700_000_000_000, 5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\0\0" + struct.pack(">q", 9) + text("m") + struct.pack(">q", 8), (9, -1, "m", 8, -1)),
        (b"\0\1" + struct.pack(">q", 9) + text("m") + struct.pack(">qq", 8, 7), (9, -1, "m", 8, 7)),
        (b"\0\2" + struct.pack(">q", 9) + text("m") + struct.pack(">q", 8), (9, -1, "m", 8, -1)),
        (b"\0\3" + struct.pack(">qi", 9, 6) + text("m") + struct.pack(">q", 8), (9, 6, "m", 8, -1)),
        (b"\0\4" + struct.pack(">qi", 9, 6) + b"\2m" + struct.pack(">q", 8) + b"\0", (9, 6, "m", 8, -1)),
        (b"\0\4" + struct.pack(">qi", 9, 6) + b"\2m" + struct.pack(">q", 8) + b"\1\5\3abc", (9, 6, "m", 8, -1)),
    ],
)
def test_all_versions_are_read(value: bytes, expected: tuple[object, ...]) -> None:
    assert decode_offset(value, 44, {}) == (*expected, NO_TOPIC_ID, 44)


def test_what_is_written_is_read() -> None:
    for offset in (
        WITH_ALL,
        WITH_ALL._replace(metadata="x" * 300),
        WITH_ALL._replace(expire_timestamp_ms=9, leader_epoch=-1, topic_id=NO_TOPIC_ID),
    ):
        assert decode_offset(offset_value(offset), 0, {}) == offset


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\5" + bytes(30), b"\xff\xff" + bytes(30), offset_value(WITH_ALL) + b"x"])
def test_values_that_cannot_be_are_refused(value: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_offset(value, 0, {})
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("offset", [WITH_ALL, WITH_ALL._replace(expire_timestamp_ms=5)])
def test_a_value_that_is_cut_off_anywhere_is_refused(offset: CommittedOffset) -> None:
    value = offset_value(offset)
    for size in range(len(value)):
        with pytest.raises(PeerError):
            decode_offset(value[:size], 0, {})


# Values of groups

MEMBER = MemberState("m-1", "i-1", "client", "/127.0.0.1", 60_000, 10_000, b"wants", b"gets")
GROUP = GroupSnapshot("consumer", 5, "range", "m-1", 1_700_000_000_000, (MEMBER, MEMBER._replace(member_id="m-2", group_instance_id=None)))


def group_bytes(version: int) -> bytes:
    """The first member of `GROUP` alone, in one of the versions before the flexible one."""
    parts = [struct.pack(">h", version), text("consumer"), struct.pack(">i", 5), text("range"), text("m-1")]
    if version >= 2:
        parts.append(struct.pack(">q", 1_700_000_000_000))
    parts += [struct.pack(">i", 1), text("m-1")]
    if version >= 3:
        parts.append(text("i-1"))
    parts += [text("client"), text("/127.0.0.1")]
    if version >= 1:
        parts.append(struct.pack(">i", 60_000))
    parts += [struct.pack(">i", 10_000), struct.pack(">i", 5), b"wants", struct.pack(">i", 4), b"gets"]
    return b"".join(parts)


@pytest.mark.parametrize("version", range(4))
def test_groups_are_read_in_all_versions(version: int) -> None:
    member = MEMBER._replace(group_instance_id="i-1" if version >= 3 else None, rebalance_timeout_ms=60_000 if version >= 1 else -1)
    timestamp_ms = GROUP.state_timestamp_ms if version >= 2 else -1
    assert decode_group(group_bytes(version)) == GROUP._replace(members=(member,), state_timestamp_ms=timestamp_ms)


def test_groups_are_read_in_the_flexible_version() -> None:
    value = (
        b"\0\4\x09consumer" + struct.pack(">i", 5) + b"\x06range\x04m-1" + struct.pack(">q", 1_700_000_000_000) + b"\x02"
        b"\x04m-1\x04i-1\x07client\x0b/127.0.0.1" + struct.pack(">ii", 60_000, 10_000) + b"\x06wants\x05gets\x01\x09\x01x" + b"\0"
    )
    assert decode_group(value) == GROUP._replace(members=(MEMBER,))


def test_groups_are_written_as_version_3() -> None:
    assert group_value(GROUP._replace(members=(MEMBER,))) == group_bytes(3)
    empty = GroupSnapshot("consumer", 6, None, None, 9, ())
    assert group_value(empty) == b"\0\3" + text("consumer") + struct.pack(">i", 6) + b"\xff\xff\xff\xff" + struct.pack(">qi", 9, 0)
    for group in (GROUP, empty):
        assert decode_group(group_value(group)) == group


def test_a_group_that_is_cut_off_or_goes_on_is_refused() -> None:
    value = group_value(GROUP)
    for bad in (*(value[:size] for size in range(len(value))), value + b"x", b"\0\5" + value[2:], b"\0\3" + b"\xff" * 30):
        with pytest.raises(PeerError) as caught:
            decode_group(bad)
        assert caught.value.code is ErrorCode.INVALID_RECORD
