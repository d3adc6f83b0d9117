"""A task reads exactly its range, whatever the log and the broker do meanwhile, or fails naming topic, partition and offset."""

from collections.abc import Callable, Sequence
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.errors import TruncationError
from moldau.client.partition_requests import AbortedRecords, FetchedBatches
from moldau.lake.reading.offsets import DataLossError, OffsetRange
from moldau.lake.reading.tasks import RangeRead, ReadError, ReadRules
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import Compression, Record, RecordBatchBuilder, encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from moldau.protocol.records.header import stamp_crc
from support.sizes import sized

LAST_OFFSET_DELTA = Struct(">i")
WHERE = TopicPartition("t", 3)


def transactional(producer: int, *offsets: int) -> bytes:
    """A batch that a producer wrote in a transaction."""
    builder = RecordBatchBuilder(base_offset=offsets[0], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    for offset in offsets:
        builder.append(0, None, str(offset).encode())
    return builder.build()


def marker(producer: int, offset: int, how: ControlType) -> bytes:
    """The end of a producer's transaction."""
    return encode_end_txn_marker(EndTxnMarker(how, 0), producer_id=producer, producer_epoch=0, timestamp=0, base_offset=offset)


def batch(*offsets: int, compression: Compression = Compression.NONE, last: int | None = None, control: bool = False) -> bytes:
    """A batch of records whose values are their offsets; `last` is its last offset where compaction has taken that record."""
    records = [Record(offset, 0, 0, None, str(offset).encode(), []) for offset in offsets]
    made = bytearray(encode_batch(records, base_offset=offsets[0], compression=compression, control=control))
    if last is not None:
        LAST_OFFSET_DELTA.pack_into(made, 23, last - offsets[0])
        stamp_crc(made)
    return bytes(made)


class FakeLog:
    """Serves batches from memory: those from the one that holds the offset on, cut at the number of bytes asked for but never to none."""

    def __init__(self, *batches: tuple[int, int, bytes], first: int = 0) -> None:
        self.batches = list(batches)
        self.first = first
        self.end = max((last for _, last, _ in batches), default=first - 1) + 1
        self.id = "one"
        self.troubles: list[Exception | Callable[[], object]] = []
        self.aborted: list[tuple[int, int, int]] = []
        """Producer, first offset and marker of aborted transactions, for a reader of committed records."""
        self.fetches = 0

    def topic_id(self, topic: str) -> str:
        return self.id

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return self.first, self.end

    def fetch(self, partition: TopicPartition, offset: int, bytes_max: int, wait_ms: int) -> FetchedBatches:
        assert partition == WHERE
        self.fetches += 1
        if self.troubles:
            trouble = self.troubles.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            trouble()
        if not self.first <= offset <= self.end:
            raise PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")
        held = [data for _, last, data in self.batches if last >= offset]
        found, whole = b"".join(held), len(held[0]) if held else 0
        aborted = tuple(AbortedRecords(producer, first) for producer, first, end in self.aborted if end >= offset)
        return FetchedBatches(memoryview(found[: max(bytes_max, whole)]), Offset(self.end), Offset(self.end), Offset(self.first), aborted)


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def dense(count: int, size: int, compression: Compression = Compression.NONE) -> FakeLog:
    """A log of `count` records in batches of `size`."""
    starts = range(0, count, size)
    return FakeLog(*((s, min(s + size, count) - 1, batch(*range(s, min(s + size, count)), compression=compression)) for s in starts))


def read(log: FakeLog, start: int, end: int, *, rules: ReadRules | None = None, topic_id: str | None = None) -> list[int]:
    """Values of a range, which are offsets."""
    clock = Clock()
    wanted = OffsetRange(WHERE.topic, WHERE.partition, start, end)
    chosen = rules or ReadRules(wanted=("value",), bytes_max=200)
    reading = RangeRead(log, wanted, chosen, topic_id=topic_id, monotonic=lambda: clock.now, sleep=clock.sleep)
    values = []
    for columns in reading:
        assert columns.value is not None
        got = [int(value) for value in columns.value.to_pylist()]
        assert got == columns.offset.tolist()
        values += got
    return values


@settings(max_examples=sized(60))
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 40), st.integers(0, 40), st.sampled_from(Compression))
def test_exactly_the_range_whatever_the_batches(count: int, size: int, a: int, b: int, compression: Compression) -> None:
    start, end = sorted((min(a, count), min(b, count)))
    assert read(dense(count, size, compression), start, end) == list(range(start, end))


def test_gaps_of_compaction_and_markers_are_no_loss() -> None:
    log = FakeLog((0, 9, batch(0, 4, 9)), (10, 10, batch(10, control=True)), (20, 29, batch(22, 25, last=29)), (40, 41, batch(40, 41)))
    assert read(log, 0, 42) == [0, 4, 9, 22, 25, 40, 41]
    assert read(log, 1, 9) == [4]
    assert read(log, 10, 11) == [], "a transaction's marker is no record"
    assert read(log, 30, 40) == [], "everything there was compacted away"


def test_records_of_aborted_transactions_are_left_out_where_the_broker_tells_of_them() -> None:
    """From wherever a range begins, in the middle of an aborted transaction too, and in fetches of one batch each."""
    log = FakeLog(
        (0, 1, batch(0, 1)),
        (2, 3, transactional(7, 2, 3)),
        (4, 5, transactional(8, 4, 5)),
        (6, 6, marker(8, 6, ControlType.COMMIT)),
        (7, 7, transactional(7, 7)),
        (8, 8, marker(7, 8, ControlType.ABORT)),
        (9, 10, transactional(7, 9, 10)),
        (11, 11, marker(7, 11, ControlType.COMMIT)),
    )
    assert read(log, 0, 12) == [0, 1, 2, 3, 4, 5, 7, 9, 10], "a reader of uncommitted records is told of none"
    log.aborted = [(7, 2, 8)]
    for bytes_max in (1, 200, 4 << 20):
        rules = ReadRules(wanted=("value",), bytes_max=bytes_max)
        for start in range(12):
            assert read(log, start, 12, rules=rules) == [offset for offset in (0, 1, 4, 5, 9, 10) if offset >= start]


def test_passing_trouble_is_waited_out() -> None:
    log = dense(10, 3)
    log.troubles = [
        WorldError("broker is away", retriable=True),
        PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"),
        PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, "not ready"),
    ]
    assert read(log, 0, 10) == list(range(10))


@pytest.mark.parametrize(
    "trouble", [WorldError("certificate is wrong", retriable=False), PeerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "may not")]
)
def test_lasting_trouble_fails_at_once_and_says_where(trouble: Exception) -> None:
    log = dense(40, 3)
    log.troubles = [lambda: None, trouble]
    with pytest.raises(ReadError, match=r"t-3: offset [1-9]\d? of \[0, 40\): "):
        read(log, 0, 40)


def test_a_broker_that_stays_away_is_given_up() -> None:
    log = dense(10, 3)
    log.troubles = [WorldError("broker is away", retriable=True)] * 10_000
    with pytest.raises(ReadError, match=r"t-3: offset 0 of \[0, 10\): nothing came for 12\d s; last: broker is away"):
        read(log, 0, 10)


def test_an_end_that_is_not_there_is_given_up() -> None:
    with pytest.raises(ReadError, match=r"t-3: offset 10 of \[0, 20\): nothing came for 12\d s; last: the broker sent no records"):
        read(dense(10, 3), 0, 20)


def test_records_that_are_gone_fail_or_are_skipped_as_asked() -> None:
    log = dense(10, 2)
    log.first = 6
    with pytest.raises(DataLossError, match=r"t-3: offset 1 of \[1, 10\): the log holds \[6, 10\)"):
        read(log, 1, 10)
    lenient = ReadRules(wanted=("value",), fail_on_data_loss=False)
    assert read(log, 1, 10, rules=lenient) == [6, 7, 8, 9]
    assert read(log, 1, 4, rules=lenient) == []
    assert read(log, 15, 20, rules=lenient) == []


def test_records_that_were_truncated_fail_the_read_or_are_accepted_as_asked(caplog: pytest.LogCaptureFixture) -> None:
    """R13: never silently."""
    log = dense(10, 2)
    log.troubles = [lambda: None, TruncationError(WHERE, 2, 1)]
    with pytest.raises(DataLossError, match=r"partition t-3: log truncated: records from offset 1 up to 2 .* it is read from 2 on"):
        read(log, 0, 10, rules=ReadRules(wanted=("value",), bytes_max=1))
    log.troubles = [lambda: None, TruncationError(WHERE, 2, 1)]
    lenient = ReadRules(wanted=("value",), bytes_max=1, fail_on_data_loss=False)
    assert read(log, 0, 10, rules=lenient) == list(range(10))
    assert "log truncated" in caplog.text


def test_a_read_counts_the_offsets_that_it_passed_over() -> None:
    log = dense(10, 2)
    log.first = 6
    lenient = ReadRules(wanted=("value",), fail_on_data_loss=False)
    for start, end, skipped in ((1, 10, [(1, 6)]), (1, 4, [(1, 4)]), (15, 20, [(15, 20)]), (7, 9, [])):
        one = RangeRead(log, OffsetRange("t", 3, start, end), lenient, sleep=lambda _: None)
        list(one)
        assert [(each.start, each.end) for each in one.skipped] == skipped
    strict = ReadRules(wanted=("value",), accept_loss="--no-fail-on-data-loss")
    with pytest.raises(DataLossError, match="; with --no-fail-on-data-loss what is left would be read"):
        read(log, 1, 10, rules=strict)


def test_a_damaged_batch_is_fetched_again_and_then_fails() -> None:
    log = dense(9, 3)
    good = list(log.batches)

    def damage() -> None:
        start, last, data = good[1]
        log.batches[1] = (start, last, data[:-1] + bytes([data[-1] ^ 1]))

    def repair() -> None:
        log.batches[:] = good

    log.troubles = [damage, lambda: None, repair]
    assert read(log, 0, 9) == list(range(9)), "it had come damaged over the wire"
    damage()
    with pytest.raises(ReadError, match=r"t-3: offset 3 of \[0, 9\): partition t-3: the batch at offset 3 is damaged: its checksum"):
        read(log, 0, 9)


def test_another_topic_under_the_same_name_is_not_read() -> None:
    assert read(dense(3, 3), 0, 3, topic_id="one") == [0, 1, 2]
    with pytest.raises(DataLossError, match=r"t-3: offset 0 of \[0, 3\): the topic was deleted and recreated"):
        read(dense(3, 3), 0, 3, topic_id="other")


def test_a_large_answer_is_handed_on_in_parts() -> None:
    """A broker may send more than was asked for; what is decoded at once stays bounded."""
    log = dense(400, 10)
    rules = ReadRules(wanted=("value",), bytes_max=100_000)
    assert read(log, 0, 400, rules=rules) == list(range(400))
    sizes: Sequence[int] = [
        len(columns) for columns in RangeRead(log, OffsetRange("t", 3, 0, 400), ReadRules(wanted=("value",), bytes_max=300))
    ]
    assert max(sizes) < 400


def test_a_topic_that_is_deleted_meanwhile_is_lost_after_a_while() -> None:
    """A topic that was just made may be unknown to a broker for a moment; one that stays unknown for ten seconds was deleted."""
    unknown = PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
    log = dense(3, 3)
    log.troubles = [unknown] * 5
    assert read(log, 0, 3) == [0, 1, 2]
    log.troubles = [unknown] * 1000
    with pytest.raises(DataLossError, match=r"t-3: offset 0 of \[0, 3\): the topic was deleted"):
        read(log, 0, 3)
    log.troubles = [unknown] * 1000
    assert read(log, 0, 3, rules=ReadRules(wanted=("value",), fail_on_data_loss=False)) == []
    assert read(dense(3, 3), 0, 3, rules=ReadRules(wanted=("value",), fail_on_data_loss=False), topic_id="other") == []
