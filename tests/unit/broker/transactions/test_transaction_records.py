"""Keys and values of the internal topic: Kafka's bytes, of both versions, and nothing else is taken for them."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from moldau.broker.transactions.transaction import LAST_EPOCH, NO_PARTITIONS, TransactionMetadata, TransactionState, partitions_of
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from support.transactions import partitions

ONGOING = TransactionMetadata(
    1000, 1000, -1, 3, 2, 60_000, TransactionState.ONGOING, partitions("t-0", "t-2", "u-1"), 1_700_000_000_000, 1_700_000_000_500, 2
)

KAFKAS = bytes.fromhex(
    "0001"  # version
    "00000000000003e8"  # producer id
    "0003"  # epoch
    "0000ea60"  # timeout
    "01"  # Ongoing
    "03"  # two topics
    "0274 03 00000000 00000002 00"
    "0275 02 00000001 00"
    "0000018bcfe569f4"  # last update
    "0000018bcfe56800"  # start
    "02"  # tags: previous producer id, client version
    "00 08 00000000000003e8"
    "02 02 0002"
)
KAFKAS_OLD = bytes.fromhex(
    "000000000000000003e800030000ea6001000000020001 74 00000002 00000000 000000020001 75 00000001 000000010000018bcfe569f40000018bcfe56800"
)


def test_a_key_is_kafkas() -> None:
    assert encode_key("äpp") == b"\0\0\0\x04\xc3\xa4pp"
    assert decode_key(encode_key("äpp")) == "äpp"
    assert decode_key(b"\0\x01anything") is None


def test_a_value_is_kafkas() -> None:
    assert encode_value(ONGOING) == KAFKAS
    assert decode_value(KAFKAS) == ONGOING._replace(last_epoch=-1)


def test_a_value_of_the_older_version_is_read() -> None:
    assert decode_value(KAFKAS_OLD) == ONGOING._replace(last_epoch=-1, previous_producer_id=-1, client_version=0)


def test_without_a_transaction_there_are_no_partitions_at_all() -> None:
    """Kafka writes null for Empty and an empty array for the others."""
    empty = ONGOING._replace(state=TransactionState.EMPTY, partitions=NO_PARTITIONS, start_ms=-1, last_epoch=-1)
    assert encode_value(empty)[17] == 0
    assert encode_value(empty._replace(state=TransactionState.COMPLETE_ABORT))[17] == 1
    assert decode_value(encode_value(empty)) == empty


def test_the_epoch_before_is_kept_of_a_producer_that_went_on() -> None:
    """As a field of our own; Kafka passes over tags that it does not know."""
    went_on = ONGOING._replace(state=TransactionState.EMPTY, partitions=NO_PARTITIONS, last_epoch=2)
    assert decode_value(encode_value(went_on)) == went_on
    assert encode_value(went_on).endswith(b"\x90\x4e\x02\x00\x02")


def test_the_epoch_before_the_end_of_a_transaction_follows_from_version_2() -> None:
    ended = ONGOING._replace(state=TransactionState.COMPLETE_COMMIT, partitions=NO_PARTITIONS)
    assert decode_value(encode_value(ended)).last_epoch == 2
    assert decode_value(encode_value(ended._replace(client_version=0))).last_epoch == -1
    rotated = ended._replace(producer_id=1001, epoch=0)
    assert decode_value(encode_value(rotated)).last_epoch == LAST_EPOCH


def test_tags_that_are_not_known_are_passed_over() -> None:
    with_more = KAFKAS[: KAFKAS.rindex(b"\x02\x00\x08")] + bytes.fromhex("04 00 08 00000000000003e8 02 02 0002 07 03 abcdef 7f 00")
    assert decode_value(with_more) == ONGOING._replace(last_epoch=-1)
    in_a_topic = KAFKAS.replace(bytes.fromhex("0275 02 00000001 00"), bytes.fromhex("0275 02 00000001 02 05 01 00 06 02 0101"))
    assert decode_value(in_a_topic) == ONGOING._replace(last_epoch=-1)


@pytest.mark.parametrize("cut", range(len(KAFKAS)))
def test_a_value_that_is_cut_short_is_refused(cut: int) -> None:
    for value in (KAFKAS[:cut], KAFKAS_OLD[: min(cut, len(KAFKAS_OLD) - 1)]):
        with pytest.raises(PeerError) as refused:
            decode_value(value)
        assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "value",
    [
        b"\0\x02" + KAFKAS[2:],
        KAFKAS[:16] + b"\x08" + KAFKAS[17:],
        KAFKAS[:17] + b"\xff\xff\xff\xff\x0f" + KAFKAS[18:],
        KAFKAS_OLD[:17] + struct.pack(">i", 2**31 - 1) + KAFKAS_OLD[21:],
        b"\0\x01" + b"\xff" * 8 + KAFKAS[10:],
        KAFKAS.replace(b"\x02t", b"\x02\xff"),
    ],
)
def test_a_value_that_cannot_be_is_refused(value: bytes) -> None:
    with pytest.raises(PeerError) as refused:
        decode_value(value)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0", b"\0\0\0\x02a", b"\0\0\0\x01\xff", b"\0\0\0\x01ab"])
def test_a_key_that_cannot_be_is_refused(key: bytes | None) -> None:
    with pytest.raises(PeerError) as refused:
        decode_key(key)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for value in (data, KAFKAS[:17] + data, KAFKAS[:-20] + data, KAFKAS_OLD[:17] + data):
        with contextlib.suppress(PeerError):
            assert decode_value(value).epoch >= 0


int64 = st.integers(-1, 2**63 - 1)
names = st.text("abc", min_size=1, max_size=200)


@given(
    st.builds(
        TransactionMetadata,
        producer_id=st.integers(0, 2**63 - 1),
        previous_producer_id=int64,
        next_producer_id=int64,
        epoch=st.integers(0, 2**15 - 1),
        last_epoch=st.just(-1),
        timeout_ms=st.integers(1, 2**31 - 1),
        state=st.just(TransactionState.ONGOING),
        partitions=st.builds(partitions_of, st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=20)),
        start_ms=int64,
        updated_ms=int64,
        client_version=st.sampled_from([0, 1, 2]),
    )
)
def test_what_is_written_is_read(transaction: TransactionMetadata) -> None:
    assert decode_value(encode_value(transaction)) == transaction
