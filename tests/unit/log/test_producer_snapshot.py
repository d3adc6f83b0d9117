"""Producer snapshots have Kafka's layout, and a damaged one is told from a good one."""

import pytest

from moldau.log.producer_entry import ProducerEntry, StoredBatch
from moldau.log.producer_snapshots import BadSnapshotError, decode_snapshot, encode_snapshot, producers_of


def crc32c(data: bytes) -> int:
    """The checksum, one bit at a time."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


ENTRIES = "00000001 00000000000003e8 0003 00000029 000000000000008d 00000009 0000018bcfe56800 ffffffff ffffffffffffffff".replace(" ", "")
"""Count; producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, start of its transaction."""


def entry() -> ProducerEntry:
    made = ProducerEntry(3, 0)
    made.batches = (StoredBatch(22, 31, 122, 131, 1), StoredBatch(32, 41, 132, 141, 1_700_000_000_000))
    made.timestamp = 1_700_000_000_000
    return made


def test_the_bytes_are_version_checksum_count_and_the_last_batch_of_each_producer() -> None:
    data = encode_snapshot({1000: entry()})
    assert data.hex() == "0001" + f"{crc32c(bytes.fromhex(ENTRIES)):08x}" + ENTRIES


def test_no_producers_take_ten_bytes() -> None:
    assert encode_snapshot({}).hex() == "0001" + f"{crc32c(bytes(4)):08x}" + "00000000"


def test_a_snapshot_gives_back_what_goes_on_from_it() -> None:
    without_batches = ProducerEntry(5, 0)
    without_batches.coordinator_epoch, without_batches.transaction_start = 4, 77
    again = producers_of(decode_snapshot(encode_snapshot({1000: entry(), 2: without_batches})), now_ms=9)
    assert again[1000].batches == (StoredBatch(32, 41, 132, 141, 1_700_000_000_000),)
    assert (again[1000].epoch, again[1000].next_sequence, again[1000].seen_ms) == (3, 42, 9)
    assert (again[2].last_sequence, again[2].next_sequence, again[2].coordinator_epoch, again[2].transaction_start) == (-1, 0, 4, 77)


def test_a_batch_whose_sequences_wrapped_keeps_its_first_sequence() -> None:
    made = ProducerEntry(0, 0)
    made.batches = (StoredBatch(2**31 - 2, 3, 10, 15, 0),)
    assert producers_of(decode_snapshot(encode_snapshot({1: made})), 0)[1].batches[0].first_sequence == 2**31 - 2


@pytest.mark.parametrize("length", range(60))
def test_every_truncation_is_refused(length: int) -> None:
    data = encode_snapshot({1000: entry()})
    with pytest.raises(BadSnapshotError):
        decode_snapshot(data[: min(length, len(data) - 1)])


def test_every_flipped_byte_is_refused() -> None:
    data = encode_snapshot({1000: entry()})
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(BadSnapshotError):
            decode_snapshot(bytes(damaged))
