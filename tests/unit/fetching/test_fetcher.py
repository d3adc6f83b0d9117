"""The machine of a follower's fetches from one source broker, as dialogues. R numbers name what others got wrong."""

import pytest

from moldau.fetching.events import (
    Apply,
    EndFound,
    Failed,
    FetcherEffect,
    Follow,
    LogEnd,
    LookUpEnd,
    Moved,
    PartitionAnswered,
    RequestEnded,
    RequestFailed,
    ResponseArrived,
    Resumed,
    SendFetch,
    SessionLost,
    StartAt,
    TimePassed,
    Truncate,
    TruncateTo,
    Unfollow,
    WakeAt,
    WantedPartition,
)
from moldau.fetching.fetcher import Fetcher
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

TOPIC_ID = b"t" * 16
ZERO, ONE, TWO = (TopicPartition("t", index) for index in range(3))
AT_10 = LogEnd(10, 4, 0)
BACK_OFF_S = 1.6


SESSION = 77


class Dialogue:
    """A fetcher, and the time, which stands still unless a test moves it. `session_id`: what the leader gives."""

    def __init__(self, session_id: int = SESSION) -> None:
        self.fetcher = Fetcher(BACK_OFF_S)
        self.now_s = 0.0
        self.session_id = session_id
        self.came: list[int] = []

    def follow(self, topic_partition: TopicPartition = ZERO, epoch: int = 5, log: LogEnd = AT_10) -> list[FetcherEffect]:
        return self.fetcher.step(Follow(topic_partition, TOPIC_ID, epoch, log), self.now_s)

    def unfollow(self, topic_partition: TopicPartition = ZERO) -> list[FetcherEffect]:
        return self.fetcher.step(Unfollow(topic_partition), self.now_s)

    def came_back(self, number: int, *filled: int) -> list[FetcherEffect]:
        """The response to a request arrives; `filled`: partitions with records in a large one."""
        self.came.append(number)
        event = ResponseArrived(number, self.session_id, tuple((TOPIC_ID, index) for index in filled))
        return self.fetcher.step(event, self.now_s)

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
        if number not in self.came:
            self.came_back(number)
        return self.fetcher.step(PartitionAnswered(number, TOPIC_ID, index, error, high_watermark, start, diverging), self.now_s)

    def moved(self, end: int, epoch: int = 4, topic_partition: TopicPartition = ZERO, start: int = 0) -> list[FetcherEffect]:
        return self.fetcher.step(Moved(topic_partition, LogEnd(end, epoch, start)), self.now_s)

    def ended(self, number: int) -> list[FetcherEffect]:
        return self.fetcher.step(RequestEnded(number), self.now_s)

    def empty(self, number: int) -> list[FetcherEffect]:
        """The response to a request has nothing of any partition."""
        self.came_back(number)
        return self.ended(number)

    def failed(self, topic_partition: TopicPartition = ZERO) -> list[FetcherEffect]:
        return self.fetcher.step(Failed(topic_partition), self.now_s)

    def passed(self, seconds: float) -> list[FetcherEffect]:
        self.now_s += seconds
        return self.fetcher.step(TimePassed(), self.now_s)


@pytest.fixture
def dialogue() -> Dialogue:
    return Dialogue()


def full(number: int, *logs: LogEnd, epoch: int = 5, session_id: int = 0, waits: bool = False) -> SendFetch:
    """A full request for partitions 0, 1 and so on."""
    wanted = tuple(WantedPartition(TOPIC_ID, index, epoch, log) for index, log in enumerate(logs))
    return SendFetch(number, session_id, 0, waits, wanted)


def next_fetch(
    number: int, changed: dict[int, LogEnd] | None = None, *forgotten: int, session_epoch: int | None = None, epoch: int = 5
) -> SendFetch:
    """One that continues the session, whose requests have the numbers from 1 on unless `session_epoch` says which it is."""
    wanted = tuple(WantedPartition(TOPIC_ID, index, epoch, log) for index, log in (changed or {}).items())
    gone = tuple((TOPIC_ID, index) for index in forgotten)
    return SendFetch(number, SESSION, number - 1 if session_epoch is None else session_epoch, True, wanted, gone)


def under_way(*indexes: int, session_id: int = SESSION) -> Dialogue:
    """These partitions are in the session, and request 2 waits at the leader."""
    dialogue = Dialogue(session_id)
    for index in indexes or (0,):
        dialogue.follow(TopicPartition("t", index))
    dialogue.empty(1)
    if len(indexes) > 1:
        assert dialogue.empty(2) != []
    return dialogue


def test_the_first_fetch_is_answered_at_once_and_those_after_it_name_what_has_changed(dialogue: Dialogue) -> None:
    assert dialogue.follow() == [full(1, AT_10)]
    assert dialogue.answered(1, high_watermark=12) == [Apply(ZERO, 12, 0)]
    assert dialogue.moved(13, 5) == [], "the answer may have more partitions"
    assert dialogue.ended(1) == [next_fetch(2, {0: LogEnd(13, 5, 0)})]
    assert dialogue.empty(2) == [next_fetch(3)]
    assert dialogue.empty(3) == [next_fetch(4)]


def test_without_a_session_all_requests_are_full_and_wait() -> None:
    dialogue = Dialogue(session_id=0)
    assert dialogue.follow() == [full(1, AT_10)]
    assert dialogue.follow(ONE) == []
    assert dialogue.empty(1) == [full(2, AT_10, AT_10, waits=True)]
    assert dialogue.follow(TWO) == [], "nothing would end the wait of the one that is out"
    assert dialogue.answered(2, ErrorCode.KAFKA_STORAGE_ERROR) == []
    (third, wake) = dialogue.ended(2)
    assert isinstance(third, SendFetch)
    assert [each.partition for each in third.partitions] == [1, 2]
    dialogue.session_id = SESSION
    assert dialogue.empty(3) == [next_fetch(4, session_epoch=1)]
    assert dialogue.passed(0.1) == [next_fetch(5, {0: AT_10}, session_epoch=2)], "the session does not have it"
    assert wake == WakeAt(0.1)


def test_a_partition_that_is_added_while_a_fetch_waits_is_sent_at_once() -> None:
    dialogue = under_way(0)
    assert dialogue.follow(ONE) == [next_fetch(3, {1: AT_10})]
    assert dialogue.follow(TWO) == [], "two are out"
    assert dialogue.empty(2) == [next_fetch(4, {2: AT_10})]
    assert dialogue.empty(3) == []
    assert dialogue.empty(4) == [next_fetch(5)]


def test_one_that_is_added_before_there_is_a_session_waits_for_that(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.follow(ONE) == []
    assert dialogue.empty(1) == [next_fetch(2, {1: AT_10})]


def test_one_that_is_followed_no_more_is_forgotten() -> None:
    dialogue = under_way(0, 1)
    assert dialogue.unfollow() == []
    assert dialogue.empty(3) == [next_fetch(4, {}, 0)]
    assert dialogue.empty(4) == [next_fetch(5)]
    dialogue.unfollow(ONE)
    assert dialogue.empty(5) == [], "nothing is left to be fetched"
    assert dialogue.follow() == [full(6, AT_10, session_id=SESSION)], "which closes the session that is there"


def test_one_that_is_followed_in_another_term_is_named_and_not_forgotten() -> None:
    dialogue = under_way(0)
    assert dialogue.follow(epoch=6) == [next_fetch(3, {0: AT_10}, epoch=6)]


def test_a_topic_that_is_made_again_is_another_one() -> None:
    dialogue = under_way(0)
    (sent,) = dialogue.fetcher.step(Follow(ZERO, b"u" * 16, 5, AT_10), 0.0)
    assert sent == SendFetch(3, SESSION, 2, True, (WantedPartition(b"u" * 16, 0, 5, AT_10),), ((TOPIC_ID, 0),))


def test_an_answer_to_a_request_by_another_end_than_the_log_has_now_does_not_count() -> None:
    """Records would be appended twice: the second request was sent before the first one's records came."""
    dialogue = under_way(0)
    dialogue.follow(ONE)
    assert dialogue.answered(2) == [Apply(ZERO, 8, 0)]
    dialogue.moved(12)
    assert dialogue.ended(2) == [next_fetch(4, {0: LogEnd(12, 4, 0)})]
    assert dialogue.answered(3) == []
    assert dialogue.answered(3, index=1) == [Apply(ONE, 8, 0)]
    dialogue.moved(10, topic_partition=ONE)
    assert dialogue.ended(3) == []
    assert dialogue.answered(4) == [Apply(ZERO, 8, 0)]


def test_a_partition_that_is_throttled_leaves_the_session_until_it_is_resumed() -> None:
    dialogue = under_way(0, 1)
    dialogue.answered(3)
    assert dialogue.fetcher.step(Moved(ZERO, LogEnd(12, 4, 0), True), 0.0) == []
    assert dialogue.ended(3) == [next_fetch(4, {}, 0)]
    assert dialogue.fetcher.step(Resumed(ZERO), 0.0) == [next_fetch(5, {0: LogEnd(12, 4, 0)})]
    assert dialogue.fetcher.step(Resumed(ZERO), 0.0) == [], "it is fetched already"
    assert dialogue.fetcher.step(Resumed(TWO), 0.0) == [], "it is not followed"


def test_a_throttle_of_an_earlier_term_says_nothing_about_the_next() -> None:
    dialogue = under_way(0)
    dialogue.answered(2)
    dialogue.fetcher.step(Moved(ZERO, LogEnd(12, 4, 0), True), 0.0)
    assert dialogue.ended(2) == []
    assert dialogue.follow(epoch=6, log=LogEnd(12, 4, 0)) == [full(3, LogEnd(12, 4, 0), epoch=6, session_id=SESSION)]


# Large answers


def test_while_a_large_answer_is_applied_the_other_partitions_are_fetched() -> None:
    dialogue = under_way(0, 1)
    assert dialogue.came_back(3, 0) == [next_fetch(4, {}, 0)]
    assert dialogue.answered(3) == [Apply(ZERO, 8, 0)]
    assert dialogue.moved(20) == []
    assert dialogue.ended(3) == [next_fetch(5, {0: LogEnd(20, 4, 0)})], "it ends the wait of the one for the others"
    assert dialogue.empty(4) == []
    assert dialogue.answered(5) == [Apply(ZERO, 8, 0)]


def test_no_offset_is_sent_before_its_records_are_appended() -> None:
    dialogue = under_way(0, 1)
    dialogue.came_back(3, 0)
    dialogue.answered(3)
    assert dialogue.empty(4) == [], "the first answer is still applied"
    dialogue.moved(20)
    assert dialogue.ended(3) == [next_fetch(5, {0: LogEnd(20, 4, 0)})]


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
def test_where_all_partitions_have_records_the_next_fetch_waits_for_them(indexes: tuple[int, ...]) -> None:
    dialogue = under_way(*indexes)
    number = len(indexes) + 1
    assert dialogue.came_back(number, *indexes) == []
    for index in indexes:
        dialogue.answered(number, index=index)
        dialogue.moved(20, topic_partition=TopicPartition("t", index))
    assert dialogue.ended(number) == [next_fetch(number + 1, dict.fromkeys(indexes, LogEnd(20, 4, 0)))]


def test_a_large_answer_that_cannot_be_applied_backs_off_with_its_partition_alone() -> None:
    dialogue = under_way(0, 1)
    dialogue.came_back(3, 0)
    dialogue.answered(3)
    dialogue.failed()
    assert dialogue.ended(3) == [WakeAt(0.1)]
    assert dialogue.passed(0.1) == [next_fetch(5, {0: AT_10})]


def test_a_large_answer_that_a_bug_ends_backs_off_with_what_is_not_applied() -> None:
    dialogue = under_way(0, 1)
    dialogue.came_back(3, 0)
    (wake,) = dialogue.fetcher.step(RequestFailed(3), 0.0)
    assert wake == WakeAt(0.1)
    assert dialogue.empty(4) == []
    assert dialogue.passed(0.1) == [full(5, AT_10, AT_10, session_id=SESSION)]


def test_r6_a_large_answer_of_an_earlier_term_does_not_count() -> None:
    dialogue = under_way(0, 1)
    dialogue.came_back(3, 0)
    dialogue.follow(epoch=6)
    assert dialogue.answered(3) == []
    assert dialogue.ended(3) == [next_fetch(5, {0: AT_10}, epoch=6)]
    assert dialogue.answered(4) == []


def test_what_was_answered_while_a_partition_backed_off_is_asked_for_again() -> None:
    """The leader does not send twice what it has answered, such as a high watermark."""
    dialogue = under_way(0)
    dialogue.follow(ONE)
    dialogue.answered(2, ErrorCode.KAFKA_STORAGE_ERROR)
    assert dialogue.answered(3) == [], "it backs off"
    dialogue.now_s = 0.1
    assert dialogue.ended(2) == []
    assert dialogue.ended(3) == [next_fetch(4, {0: AT_10})]


# Sessions that end


@pytest.mark.parametrize("count", [1, 2])
def test_a_session_that_the_leader_does_not_have_is_opened_again_at_once(count: int) -> None:
    dialogue = under_way(0)
    if count == 2:
        dialogue.follow(ONE)
        assert dialogue.fetcher.step(SessionLost(2), 0.0) == [], "an answer is out that would be taken for that to the next"
    logs = [AT_10] * count
    assert dialogue.fetcher.step(SessionLost(count + 1), 0.0) == [full(count + 2, *logs, session_id=SESSION)]
    dialogue.session_id = SESSION + 1
    assert dialogue.empty(count + 2) == [SendFetch(count + 3, SESSION + 1, 1, True, ())]


def test_a_request_that_fails_ends_the_session_and_all_of_it_back_off() -> None:
    dialogue = under_way(0, 1)
    dialogue.follow(TWO)
    assert dialogue.fetcher.step(RequestFailed(3), 0.0) == [WakeAt(0.1)]
    assert dialogue.fetcher.step(RequestFailed(4), 0.0) == [], "it may have failed with the same connection"
    assert dialogue.passed(0.1) == [full(5, AT_10, AT_10, AT_10, session_id=SESSION)]


# Errors and truncation


def test_r5_a_diverging_epoch_truncates_and_nothing_else_of_the_answer_counts(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.answered(1, high_watermark=10, diverging=(3, 7)) == [Truncate(ZERO, 3, 7)]
    dialogue.moved(7, 3)
    assert dialogue.ended(1) == [next_fetch(2, {0: LogEnd(7, 3, 0)})]


def test_a_truncation_that_changes_nothing_is_not_repeated_at_once() -> None:
    dialogue = under_way(0, 1)
    dialogue.answered(3, diverging=(3, 10))
    dialogue.moved(10, 4)
    assert dialogue.ended(3) == [next_fetch(4, {}, 0), WakeAt(0.1)]
    assert dialogue.passed(0.1) == [next_fetch(5, {0: AT_10})]


@pytest.mark.parametrize("late", ["answer", "lookup"])
@pytest.mark.parametrize("change", ["epoch", "stopped", "stopped and followed again"])
def test_r6_what_was_asked_in_another_term_is_ignored(change: str, late: str) -> None:
    dialogue = under_way(0, 1)
    if late == "lookup":
        (lookup,) = dialogue.answered(3, ErrorCode.OFFSET_OUT_OF_RANGE)
        dialogue.ended(3)
    if change != "epoch":
        dialogue.unfollow()
    if change != "stopped":
        dialogue.follow(epoch=6)
    if late == "lookup":
        assert isinstance(lookup, LookUpEnd)
        assert dialogue.fetcher.step(EndFound(lookup.number, ZERO, 3), 0.0) == []
        return
    for error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE):
        assert dialogue.answered(3, error, start=20) == []
    assert dialogue.answered(3, diverging=(3, 7)) == []
    assert dialogue.ended(3) == ([next_fetch(4, {}, 0)] if change == "stopped" else [])


def test_r6_an_answer_to_an_earlier_request_is_ignored(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.fetcher.step(RequestFailed(1), 0.0)
    assert dialogue.passed(0.1) == [full(2, AT_10)]
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
@pytest.mark.parametrize("session_id", [0, SESSION])
def test_r6_an_error_backs_off_and_the_partition_is_fetched_again_and_again(error: ErrorCode, session_id: int) -> None:
    """Each time after twice the time, up to the maximum."""
    dialogue = Dialogue(session_id)
    dialogue.follow()
    for number, wait_s in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 1.6), start=1):
        assert dialogue.answered(number, error) == []
        (wake,) = dialogue.ended(number)
        assert isinstance(wake, WakeAt)
        assert wake.time_s == pytest.approx(dialogue.now_s + wait_s)
        (again,) = dialogue.passed(wait_s + 1e-9)
        assert again == full(number + 1, AT_10, session_id=session_id, waits=session_id == 0)


def test_it_wakes_for_the_partition_that_is_due_first() -> None:
    dialogue = under_way(0, 1)
    dialogue.answered(3, ErrorCode.KAFKA_STORAGE_ERROR)
    dialogue.now_s = 0.05
    dialogue.answered(3, ErrorCode.KAFKA_STORAGE_ERROR, index=1)
    assert dialogue.ended(3) == [WakeAt(0.1)]
    sent, wake = dialogue.passed(0.05)
    assert sent == full(4, AT_10, session_id=SESSION)
    assert isinstance(wake, WakeAt)
    assert wake.time_s == pytest.approx(0.15)


def test_r12_a_partition_that_cannot_be_applied_stops_alone_and_resumes() -> None:
    dialogue = under_way(0, 1)
    assert dialogue.answered(3) == [Apply(ZERO, 8, 0)]
    dialogue.failed()
    assert dialogue.answered(3, index=1) == [Apply(ONE, 8, 0)]
    dialogue.moved(12, topic_partition=ONE)
    assert dialogue.ended(3) == [next_fetch(4, {1: LogEnd(12, 4, 0)}, 0), WakeAt(0.1)]
    assert dialogue.passed(0.1) == [next_fetch(5, {0: AT_10})], "though a fetch waits for the other one"


def test_r9_an_end_before_the_leaders_start_begins_there(dialogue: Dialogue) -> None:
    dialogue.follow()
    assert dialogue.answered(1, ErrorCode.OFFSET_OUT_OF_RANGE, start=20) == [StartAt(ZERO, 20)]
    dialogue.moved(20, -1, start=20)
    assert dialogue.ended(1) == [next_fetch(2, {0: LogEnd(20, -1, 20)})]


def test_r13_an_end_after_the_leaders_is_cut_to_it() -> None:
    dialogue = under_way(0, 1)
    assert dialogue.answered(3, ErrorCode.OFFSET_OUT_OF_RANGE, start=2) == [LookUpEnd(4, ZERO, 5)]
    assert dialogue.ended(3) == [next_fetch(5, {}, 0, session_epoch=3)], "it is not fetched meanwhile"
    assert dialogue.fetcher.step(EndFound(4, ZERO, 6), 0.0) == [TruncateTo(ZERO, 6)]
    assert dialogue.moved(6) == [next_fetch(6, {0: LogEnd(6, 4, 0)}, session_epoch=4)]


@pytest.mark.parametrize("end_offset", [None, 10, 11])
def test_a_lookup_that_explains_nothing_fetches_again_after_a_while(dialogue: Dialogue, end_offset: int | None) -> None:
    dialogue.follow()
    dialogue.answered(1, ErrorCode.OFFSET_OUT_OF_RANGE, start=2)
    dialogue.ended(1)
    assert dialogue.fetcher.step(EndFound(2, ZERO, end_offset), 0.0) == [WakeAt(0.1)]
    assert dialogue.passed(0.1) == [full(3, AT_10, session_id=SESSION)]


def test_r7_an_answer_without_records_changes_neither_offset_nor_epoch(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.answered(1)
    dialogue.moved(10, 4)
    assert dialogue.ended(1) == [next_fetch(2)]


def test_partitions_that_had_records_come_last_in_the_next_full_request() -> None:
    dialogue = Dialogue(session_id=0)
    dialogue.follow()
    dialogue.follow(ONE)
    dialogue.empty(1)
    dialogue.answered(2)
    dialogue.moved(11)
    (next_,) = dialogue.ended(2)
    assert isinstance(next_, SendFetch)
    assert [each.partition for each in next_.partitions] == [1, 0]


def test_a_failed_request_backs_off_all_that_it_asked_for_and_nothing_else(dialogue: Dialogue) -> None:
    dialogue.follow()
    dialogue.follow(ONE)
    (only, wake) = dialogue.fetcher.step(RequestFailed(1), 0.0)
    assert isinstance(only, SendFetch)
    assert [each.partition for each in only.partitions] == [1]
    assert wake == WakeAt(0.1)
