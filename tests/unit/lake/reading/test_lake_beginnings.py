"""The small ranges of a task begin with one fetch, and each is read as if it had been alone."""

from collections.abc import Mapping

import pytest

from moldau.client.partition_requests import FetchedBatches
from moldau.lake.reading.offsets import DataLossError, OffsetRange
from moldau.lake.reading.tasks import FirstFetches, RangeRead, ReadRules
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import Record, encode_batch

A, B, C = (TopicPartition("t", number) for number in range(3))
RULES = ReadRules(wanted=("value",), bytes_max=1 << 20)


class Log:
    """Partitions of three records each, in batches of one; says what it was asked for."""

    def __init__(self) -> None:
        self.id = "one"
        self.asked: list[str] = []
        self.together_trouble: Exception | None = None
        self.left_out: set[TopicPartition] = set()
        """Those for which a fetch of many has no room."""
        self.room = 100
        """Of so many partitions a fetch of many brings records."""
        self.id_behind: str | None = None
        """The topic's id once the first range is read."""

    def topic_id(self, topic: str) -> str:
        self.asked.append("id")
        return self.id

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, 3

    def fetch(self, partition: TopicPartition, offset: int, bytes_max: int, wait_ms: int) -> FetchedBatches:
        self.asked.append(f"{partition.partition} from {offset}")
        if offset > 3:
            raise PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")
        return self._records(partition, offset)

    def fetch_many(self, positions: Mapping[TopicPartition, int], bytes_max: int, wait_ms: int) -> Mapping[TopicPartition, FetchedBatches]:
        self.asked.append(f"{len(positions)} together")
        if self.together_trouble is not None:
            raise self.together_trouble
        full = {*self.left_out, *list(positions)[self.room :]}
        return {where: self._records(where, 3 if where in full else offset) for where, offset in positions.items()}

    def _records(self, where: TopicPartition, offset: int) -> FetchedBatches:
        found = b"".join(
            encode_batch([Record(each, 0, 0, None, b"%d/%d" % (where.partition, each), [])], base_offset=each) for each in range(offset, 3)
        )
        return FetchedBatches(memoryview(found), Offset(3), Offset(3), Offset(0))


def read(log: Log, *ranges: tuple[TopicPartition, int, int]) -> list[str]:
    """The values of a task."""
    wanted = [OffsetRange(*where, start, end) for where, start, end in ranges]
    fetcher = FirstFetches(log, wanted)
    values = []
    for each in wanted:
        for columns in RangeRead(fetcher.begin(each), each, RULES, topic_id="one"):
            assert columns.value is not None
            values += [value.decode() for value in columns.value.to_pylist()]
        log.id = log.id_behind or log.id
    return values


WHOLE = ((A, 0, 3), (B, 1, 3), (C, 2, 3))
ALL = ["0/0", "0/1", "0/2", "1/1", "1/2", "2/2"]


def test_small_ranges_cost_one_question_for_the_topic_and_one_fetch() -> None:
    log = Log()
    assert read(log, *WHOLE) == ALL
    assert log.asked == ["id", "3 together"]


def test_a_range_that_is_alone_is_fetched_alone() -> None:
    log = Log()
    assert read(log, (A, 0, 3)) == ALL[:3]
    assert log.asked == ["id", "0 from 0"]


def test_what_had_no_room_is_fetched_behind_the_rest_with_the_topic_looked_at_again() -> None:
    log = Log()
    log.left_out = {B, C}
    assert read(log, *WHOLE) == ALL
    assert log.asked == ["id", "3 together", "id", "2 together", "1 from 1", "id", "2 from 2"]


def test_of_many_ranges_those_that_had_no_room_are_fetched_together_again() -> None:
    """Of hundreds of partitions each was asked for alone, behind a question for the whole topic: a time that grew with their square."""
    log = Log()
    log.room = 2
    ranges = [(TopicPartition("t", number), 0, 3) for number in range(6)]
    assert read(log, *ranges) == [f"{number}/{each}" for number in range(6) for each in range(3)]
    assert log.asked == ["id", "6 together", "id", "4 together", "id", "2 together"]


def test_two_ranges_of_one_partition_share_no_bytes() -> None:
    log = Log()
    assert read(log, (A, 0, 1), (A, 1, 3), (B, 2, 3)) == ["0/0", "0/1", "0/2", "1/2"]
    assert log.asked == ["id", "2 together", "id", "0 from 1"]


@pytest.mark.parametrize("trouble", [WorldError("away", retriable=True), PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")])
def test_where_the_common_fetch_fails_each_range_asks_alone(trouble: Exception) -> None:
    log = Log()
    log.together_trouble = trouble
    assert read(log, *WHOLE) == ALL
    assert [each for each in log.asked if each != "id"] == ["3 together", "0 from 0", "1 from 1", "2 from 2"]


def test_the_trouble_of_one_range_is_named_as_its_own() -> None:
    log = Log()
    log.together_trouble = PeerError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")
    with pytest.raises(DataLossError, match=r"t-1: offset 7 of \[7, 9\): the log holds \[0, 3\)"):
        read(log, (A, 0, 3), (B, 7, 9))


def test_another_topic_of_the_same_name_is_not_read() -> None:
    log = Log()
    log.id = "two"
    with pytest.raises(DataLossError, match=r"t-0: offset 0 of \[0, 3\): the topic was deleted and recreated"):
        read(log, *WHOLE)
    assert log.asked == ["id"]


def test_the_id_of_the_beginnings_says_nothing_of_a_range_that_was_left_out() -> None:
    """The topic is made anew while the first range is read. What was fetched with it is the old topic's, what was left out is not."""
    log = Log()
    log.left_out, log.id_behind = {B}, "two"
    with pytest.raises(DataLossError, match=r"t-1: offset 1 of \[1, 3\): the topic was deleted and recreated"):
        read(log, *WHOLE)
