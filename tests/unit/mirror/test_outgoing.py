"""A batch passes as it is wherever it can; its records are taken one by one where some are missing or not wanted, and none is changed."""

import pytest

from moldau.mirror.fetched import Batch
from moldau.mirror.merge.outgoing import JOINED_BYTES, JOINED_RECORDS, Outgoing, Run, by_record, joined, next_sequence, passes_whole, whole
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import check_batch, peek_header, read_header
from moldau.protocol.records.record import CREATE_TIME, Record

TARGET, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
HEADERS: list[tuple[str, bytes | None]] = [("trace", b"7"), ("empty", None)]


def record(offset: int, key: bytes | None = b"k") -> Record:
    return Record(offset, 1_000 + offset, CREATE_TIME, key, b"value %d" % offset, HEADERS)


def batch(*offsets: int, base: int | None = None, **options: object) -> Batch:
    base = offsets[0] if base is None else base
    data = memoryview(bytearray(encode_batch([record(each) for each in offsets], base_offset=base, **options)))  # type: ignore[arg-type]
    return read_header(data), data


def contents(outgoing: Outgoing) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    found = iterate(outgoing.data, max_decompressed_bytes=1 << 20)
    return [(each.timestamp, each.key, each.value, each.headers) for each in found]


def expected(*offsets: int) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(1_000 + each, b"k", b"value %d" % each, HEADERS) for each in offsets]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_whole_batch_gets_another_producer_and_keeps_its_records_compressed(codec: Compression) -> None:
    # a batch of a producer of the source, compressed
    source = batch(70, 71, 72, compression=codec, producer_id=9, producer_epoch=3, base_sequence=40, leader_epoch=6)
    before = bytes(source[1])
    assert passes_whole(source[0], 70)

    # gets the mirror's producer: the target's broker takes it as produced, with a right checksum
    outgoing = whole(source, TARGET)
    outgoing.stamp(1_234, 5, 17)
    header = check_batch(outgoing.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (1_234, 5, 17, True)

    # and what is compressed is not touched
    assert bytes(outgoing.data)[61:] == before[61:]
    assert contents(outgoing) == expected(70, 71, 72)
    assert outgoing.runs == [Run(70, 3)]


@pytest.mark.parametrize(
    ("source", "position"),
    [
        pytest.param(batch(70, 72), 70, id="compaction has removed a record"),
        pytest.param(batch(71, 72, base=70), 70, id="compaction has removed the first record"),
        pytest.param(batch(70, 71, 72), 71, id="it begins before the position"),
        pytest.param(batch(70, 71, log_append_time_ms=5), 70, id="its time is the source's"),
    ],
)
def test_what_cannot_pass_whole(source: Batch, position: int) -> None:
    assert not passes_whole(source[0], position)


def test_records_one_by_one_keep_everything_and_their_runs_say_where_they_were() -> None:
    # of four records compaction has left three, and the first is before the position
    source = batch(70, 71, 74, 75, compression=Compression.LZ4)
    (outgoing,) = by_record(source, 71, lambda _record: TARGET)

    # the others are one batch without gaps
    outgoing.stamp(1, 0, 0)
    assert check_batch(outgoing.data).record_count == 3
    assert peek_header(outgoing.data).compression == Compression.LZ4
    assert contents(outgoing) == expected(71, 74, 75)
    assert outgoing.runs == [Run(71, 1), Run(74, 2)]


def test_the_time_of_the_source_becomes_the_records_own() -> None:
    (outgoing,) = by_record(batch(70, 71, log_append_time_ms=5_000), 70, lambda _record: TARGET)
    assert [each[0] for each in contents(outgoing)] == [5_000, 5_000]
    assert not peek_header(outgoing.data).timestamp_type_is_log_append


def test_records_that_go_to_several_partitions_keep_their_order_in_each() -> None:
    first, second = by_record(batch(70, 71, 72, 73), 0, lambda each: TARGET if each.offset % 2 == 0 else OTHER)
    assert (first.target, contents(first)) == (TARGET, expected(70, 72))
    assert (second.target, contents(second)) == (OTHER, expected(71, 73))
    assert second.runs == [Run(71, 1), Run(73, 1)]


def test_after_the_largest_sequence_comes_zero() -> None:
    assert next_sequence(2**31 - 2, 1) == 2**31 - 1
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 1, 3) == 2


def test_small_batches_of_one_target_that_follow_each_other_are_joined_and_keep_their_records_and_runs() -> None:
    # three small batches with a gap before the last, and one for another partition
    batches = [whole(batch(70), TARGET), whole(batch(71, 72), TARGET), whole(batch(80), TARGET), whole(batch(90), OTHER)]
    one, other = joined(batches, apart=())

    # the first three are one, with all that their records had
    assert (one.target, one.count, contents(one)) == (TARGET, 4, expected(70, 71, 72, 80))
    assert one.runs == [Run(70, 3), Run(80, 1)]
    assert other is batches[3]

    # the target's broker takes it as produced
    one.stamp(1_234, 5, 17)
    header = check_batch(one.data)
    assert (header.producer_id, header.base_sequence, header.last_offset_delta, header.max_timestamp) == (1_234, 17, 3, 1_080)


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        pytest.param(whole(batch(70), TARGET), whole(batch(71), OTHER), (), id="another target"),
        pytest.param(whole(batch(70), TARGET, ("paris",)), whole(batch(71), TARGET), (), id="another chain of clusters"),
        pytest.param(whole(batch(70), TARGET), whole(batch(71, compression=Compression.GZIP), TARGET), (), id="compressed"),
        pytest.param(whole(batch(70), TARGET), whole(batch(*range(71, 71 + JOINED_RECORDS + 1)), TARGET), (), id="many records"),
        pytest.param(
            whole(batch(70), TARGET), whole(batch(71), TARGET), (TARGET,), id="the target has refused a joined batch for its size"
        ),
    ],
)
def test_batches_that_are_not_joined_pass_as_they_are(first: Outgoing, second: Outgoing, apart: tuple[TopicPartition, ...]) -> None:
    assert joined([first, second], apart) == [first, second]


def test_joined_batches_stay_below_their_bound() -> None:
    batches = [whole(batch(each), TARGET) for each in range(1_000)]
    found = joined(batches, apart=())
    assert 1 < len(found) < 20
    assert all(len(each.data) <= JOINED_BYTES for each in found)
    assert [record for each in found for record in contents(each)] == expected(*range(1_000))


def test_batches_that_cannot_be_read_pass_as_they_are() -> None:
    damaged = whole(batch(70), TARGET)
    damaged.data[61:] = bytes(len(damaged.data) - 61)
    batches = [damaged, whole(batch(71), TARGET)]
    assert joined(batches, apart=()) == batches
