"""What a merge writes beside the records can be read again, and damage is an error that shows it."""

import json

import pytest

from moldau.mirror.merge.outgoing import whole
from moldau.mirror.merge.positions import OFFSETS, POSITIONS, Key, Stored, offsets_batch, positions_batch, stored_in
from moldau.mirror.partitions import Position
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.header import read_header
from moldau.protocol.records.record import CREATE_TIME, Record

KEY = Key("aggregate", "east", bytes(range(16)), 3)


def test_a_position_is_read_as_it_was_written() -> None:
    stored = Stored(Position(71, 6), "orders", "1")
    batch = positions_batch([(KEY, stored)], 5)
    assert batch.target == POSITIONS
    assert [stored_in(each) for each in iterate(batch.data, max_decompressed_bytes=1 << 20)] == [(KEY, stored)]


def test_a_position_that_was_taken_back_is_none() -> None:
    assert stored_in(Record(0, 0, CREATE_TIME, KEY.encode(), None, [])) == (KEY, None)


def test_runs_name_the_offsets_that_records_have_got() -> None:
    # two batches of a partition were stored at 500 and 900
    data = [memoryview(bytearray(encode_batch([Record(each, 0, CREATE_TIME, None, b"", [])], base_offset=each))) for each in (70, 71)]
    batches = [whole((read_header(each), each), TopicPartition("east.orders", 3)) for each in data]
    batches[0].base_offset, batches[1].base_offset = 500, 900
    (found,) = iterate(offsets_batch([(KEY, batches)], 5).data, max_decompressed_bytes=1 << 20)
    assert found.key == KEY.encode()
    assert json.loads(found.value or b"") == {"topic": "east.orders", "runs": [[70, 1, 3, 500], [71, 1, 3, 900]]}
    assert offsets_batch([(KEY, batches)], 5).target == OFFSETS


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"mirror":"a"}', b"\xff", b'{"mirror":1,"cluster":2,"topic_id":3,"partition":4}'])
def test_a_damaged_key_is_an_error_that_names_the_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^_mirror_positions-0, offset 7: not the key of a position"):
        stored_in(Record(7, 0, CREATE_TIME, data, None, []))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"offset":1}', b'{"offset":"x","epoch":1,"topic":"","instance":""}'])
def test_a_damaged_position_is_an_error_that_names_the_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^_mirror_positions-0, offset 7: not a position"):
        stored_in(Record(7, 0, CREATE_TIME, KEY.encode(), data, []))
