"""The machine of a follower's fetches from one source broker, as dialogues. R numbers name what others got wrong."""

import pytest

from moldau.broker.replicas.fetcher import (
    Apply,
    EndFound,
    Failed,
    Fetcher,
    FetcherEffect,
    Follow,
    LogEnd,
    LookUpEnd,
    Moved,
    PartitionAnswered,
    RequestEnded,
    RequestFailed,
    SendFetch,
    StartAt,
    TimePassed,
    Truncate,
    TruncateTo,
    Unfollow,
    WakeAt,
    WantedPartition,
)
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

TOPIC_ID = b"t" * 16
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
AT_10 = LogEnd(10, 4, 0)
BACK_OFF_S = 1.6


class Dialogue:
    """A fetcher, and the time, which stands still unless a test moves it."""

    def __init__(self) -> None:
        self.fetcher = Fetcher(BACK_OFF_S)
        self.now_s = 0.0

    def follow(self, topic_partition: TopicPartition = ZERO, epoch: int = 5, log: LogEnd = AT_10) -> list[FetcherEffect]:
        return self.fetcher.step(Follow(topic_partition, TOPIC_ID, epoch, log), self.now_s)

    def answered(
        self,
        number: int,
        error: ErrorCode = ErrorCode.NONE,
        *,
        index: int = 0,
        high_watermark: int = 8,
        start: int = 0,
        diverging: tuple[int, int] | None = None,
    ) -> list[FetcherEffect]:
        return self.fetcher.step(PartitionAnswered(number, TOPIC_ID, index, error, high_watermark, start, diverging), self.now_s)

    def moved(self, end: int, epoch: int = 4, topic_partition: TopicPartition = ZERO, start: int = 0) -> list[FetcherEffect]:
        return self.fetcher.step(Moved(topic_partition, LogEnd(end, epoch, start)), self.now_s)

    def ended(self, number: int) -> list[FetcherEffect]:
        return self.fetcher.step(RequestEnded(number), self.now_s)

    def passed(self, seconds: float) -> list[FetcherEffect]:
        self.now_s += seconds
        return self.fetcher.step(TimePassed(), self.now_s)


@pytest.fixture
def dialogue() -> Dialogue:
    return Dialogue()


def fetch(number: int, *logs: LogEnd, epoch: int = 5) -> SendFetch:
    """Of partitions 0, 1 and so on."""
    return SendFetch(number, tuple(WantedPartition(TOPIC_ID, index, epoch, log) for index, log in enumerate(logs)))


def test_records_are_applied_and_the_next_fetch_continues_where_the_log_ends(dialogue: Dialogue) -> None:
    assert dialogue.follow() == [fetch(1, AT_10)]
    assert dialogue.answered(1, high_watermark=12) == [Apply(ZERO, 12, 0)]
    assert dialogue.moved(13, 5) == [], "the answer may have more partitions"
    assert dialogue.ended(1) == [fetch(2, LogEnd(13, 5, 0))]


def test_one_fetch_is_out_and_the_next_has_all_partitions(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.follow(ONE) == []
    dialogue.answered(1)
    dialogue.moved(10)
    assert dialogue.ended(1) == [fetch(2, AT_10, AT_10)]


def test_r5_a_diverging_epoch_truncates_and_nothing_else_of_the_answer_counts(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.answered(1, high_watermark=10, diverging=(3, 7)) == [Truncate(ZERO, 3, 7)]
    dialogue.moved(7, 3)
    assert dialogue.ended(1) == [fetch(2, LogEnd(7, 3, 0))]


def test_a_truncation_that_changes_nothing_is_not_repeated_at_once(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.answered(1, diverging=(3, 10))
    dialogue.moved(10, 4)
    assert dialogue.ended(1) == [WakeAt(0.1)]
    assert dialogue.passed(0.1) == [fetch(2, AT_10)]


@pytest.mark.parametrize("late", ["answer", "lookup"])
@pytest.mark.parametrize("change", ["epoch", "stopped", "stopped and followed again"])
def test_r6_what_was_asked_in_another_term_is_ignored(dialogue: Dialogue, change: str, late: str) -> None:
    dialogue.follow()
    if late == "lookup":
        (lookup,) = dialogue.answered(1, ErrorCode.OFFSET_OUT_OF_RANGE)
        dialogue.ended(1)
    if change != "epoch":
        dialogue.fetcher.step(Unfollow(ZERO), 0.0)
    if change != "stopped":
        dialogue.follow(epoch=6)
    if late == "lookup":
        assert isinstance(lookup, LookUpEnd)
        assert dialogue.fetcher.step(EndFound(lookup.number, ZERO, 3), 0.0) == []
        return
    for error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE):
        assert dialogue.answered(1, error, start=20) == []
    assert dialogue.answered(1, diverging=(3, 7)) == []
    assert dialogue.ended(1) == ([] if change == "stopped" else [fetch(2, AT_10, epoch=6)])


def test_r6_an_answer_to_an_earlier_request_is_ignored(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.fetcher.step(RequestFailed(1), 0.0)
    assert dialogue.passed(0.1) == [fetch(2, AT_10)]
    assert dialogue.answered(1, diverging=(3, 7)) == []
    assert dialogue.ended(1) == []


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_r6_an_error_backs_off_and_the_partition_is_fetched_again_and_again(dialogue: Dialogue, error: ErrorCode) -> None:
    """Each time after twice the time, up to the maximum."""
    dialogue.follow()
    for number, wait_s in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 1.6), start=1):
        assert dialogue.answered(number, error) == []
        (wake,) = dialogue.ended(number)
        assert isinstance(wake, WakeAt)
        assert wake.time_s == pytest.approx(dialogue.now_s + wait_s)
        (again,) = dialogue.passed(wait_s + 1e-9)
        assert again == fetch(number + 1, AT_10)


def test_r12_a_partition_that_cannot_be_applied_stops_alone_and_resumes(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.follow(ONE)
    dialogue.answered(1)
    dialogue.moved(10)
    dialogue.ended(1)
    assert dialogue.answered(2) == [Apply(ZERO, 8, 0)]
    dialogue.fetcher.step(Failed(ZERO), 0.0)
    assert dialogue.answered(2, index=1) == [Apply(ONE, 8, 0)]
    dialogue.moved(12, topic_partition=ONE)
    (only,) = dialogue.ended(2)
    assert isinstance(only, SendFetch)
    assert [each.partition for each in only.partitions] == [1]
    dialogue.answered(3, index=1)
    dialogue.moved(12, topic_partition=ONE)
    dialogue.now_s = 0.1
    (both,) = dialogue.ended(3)
    assert isinstance(both, SendFetch)
    assert sorted(each.partition for each in both.partitions) == [0, 1]


def test_r9_an_end_before_the_leaders_start_begins_there(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.answered(1, ErrorCode.OFFSET_OUT_OF_RANGE, start=20) == [StartAt(ZERO, 20)]
    dialogue.moved(20, -1, start=20)
    assert dialogue.ended(1) == [fetch(2, LogEnd(20, -1, 20))]


def test_r13_an_end_after_the_leaders_is_cut_to_it(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.answered(1, ErrorCode.OFFSET_OUT_OF_RANGE, start=2) == [LookUpEnd(2, ZERO, 5)]
    assert dialogue.ended(1) == [], "it is not fetched meanwhile"
    assert dialogue.fetcher.step(EndFound(2, ZERO, 6), 0.0) == [TruncateTo(ZERO, 6)]
    assert dialogue.moved(6) == [fetch(3, LogEnd(6, 4, 0))]


@pytest.mark.parametrize("end_offset", [None, 10, 11])
def test_a_lookup_that_explains_nothing_fetches_again_after_a_while(dialogue: Dialogue, end_offset: int | None) -> None:
    dialogue.follow()
    dialogue.answered(1, ErrorCode.OFFSET_OUT_OF_RANGE, start=2)
    dialogue.ended(1)
    assert dialogue.fetcher.step(EndFound(2, ZERO, end_offset), 0.0) == [WakeAt(0.1)]
    assert dialogue.passed(0.1) == [fetch(3, AT_10)]


def test_r7_an_answer_without_records_changes_neither_offset_nor_epoch(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.answered(1)
    dialogue.moved(10, 4)
    assert dialogue.ended(1) == [fetch(2, AT_10)]


def test_partitions_that_had_records_come_last_in_the_next_fetch(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.follow(ONE)
    dialogue.answered(1)
    dialogue.moved(11)
    (next_,) = dialogue.ended(1)
    assert isinstance(next_, SendFetch)
    assert [each.partition for each in next_.partitions] == [1, 0]


def test_a_failed_request_backs_off_all_that_it_asked_for_and_nothing_else(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.follow(ONE)
    (only,) = dialogue.fetcher.step(RequestFailed(1), 0.0)
    assert isinstance(only, SendFetch)
    assert [each.partition for each in only.partitions] == [1]
