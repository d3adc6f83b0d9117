"""Automatic commits: a failure is logged once for each streak, covered by a later commit, or else raised (mission B4)."""

import logging
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from moldau.client.commits import Commits
from moldau.client.failures import CommitError
from moldau.model.identity import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AWAY = KafkaError(KafkaError._WAIT_COORD, "Local: Waiting for coordinator")


def at(*places: tuple[int, int]) -> list[Any]:
    """Partitions of topic t with offsets, as librdkafka reports them."""
    return [confluent_kafka.TopicPartition("t", partition, offset) for partition, offset in places]


@pytest.fixture
def commits() -> Commits:
    return Commits("g")


def test_one_line_for_each_streak(commits: Commits, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        commits.reported(AWAY, at((0, 5), (1, 7)))
        commits.reported(AWAY, at((0, 6), (1, 7)))
        commits.reported(None, at((0, 6)))
        commits.reported(AWAY, at((0, 8), (1, 9)))
    assert [record.message for record in caplog.records] == [
        "consumer: offset not committed: group g, partition t-0 at offset 5: WAIT_COORD: Waiting for coordinator (and 1 more partitions)",
        "consumer: offset not committed: group g, partition t-0 at offset 8: WAIT_COORD: Waiting for coordinator",
    ]


def test_what_no_later_commit_covers_is_raised_once(commits: Commits) -> None:
    assert not commits.reported(AWAY, at((0, 5), (1, 7)))
    commits.done({T0: 6})
    with pytest.raises(CommitError, match=r"^group g, partition t-1 at offset 7: WAIT_COORD: Waiting for coordinator$"):
        commits.raise_failure()
    commits.raise_failure()
    commits.reported(AWAY, at((0, 5), (1, 8)))
    with pytest.raises(CommitError, match="t-0 at offset 5") as caught:
        commits.raise_failure()
    assert caught.value.__notes__ == ["and 1 more partitions"]


def test_a_partition_can_fail_alone(commits: Commits) -> None:
    places = at((0, 5), (1, 7))
    places[1] = type("Place", (), {"topic": "t", "partition": 1, "offset": 7, "error": KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)})
    commits.want({T0: 5, T1: 7})
    assert not commits.reported(None, places)
    with pytest.raises(CommitError, match="t-1 at offset 7: UNKNOWN_TOPIC_OR_PART"):
        commits.raise_failure()


def test_nothing_to_commit_is_no_failure(commits: Commits) -> None:
    assert commits.reported(KafkaError(KafkaError._NO_OFFSET), at((0, -1001)))
    assert commits.reported(KafkaError(KafkaError._NO_OFFSET), at((0, 5)))
    commits.raise_failure()


def test_what_has_no_outcome_yet(commits: Commits) -> None:
    commits.want({T0: 5, T1: 7})
    commits.reported(None, at((0, 4)))
    assert commits.unknown() == {T0: 5, T1: 7}, "an older commit"
    commits.reported(None, at((0, 5)))
    assert commits.unknown() == {T1: 7}
    commits.reported(AWAY, at((1, 7)))
    assert commits.unknown() == {}, "it has failed, which is known"
    commits.want({T0: 6})
    commits.release([T0], lost=False)
    assert commits.unknown() == {T0: 6}, "on its way"
    commits.want({T1: 8})
    commits.release([T1], lost=True)
    assert commits.wanted() == {}, "others commit it now"


def test_after_a_seek_librdkafka_is_asked_until_it_has_committed_once(commits: Commits) -> None:
    commits.want({T0: 30, T1: 7})
    assert commits.to_request() == {}, "it does that by itself"
    commits.moved(T0)
    commits.reported(None, at((0, 30)))
    commits.want({T0: 10})
    assert commits.to_request() == {T0: 10}, "the commit from before the seek says nothing"
    commits.want({T0: 11})
    assert commits.to_request() == {}, "one at a time"
    assert commits.to_request(at_last=True) == {T0: 11}, "unless there is no later time"
    commits.reported(AWAY, at((0, 11)))
    assert commits.to_request() == {T0: 11}
    commits.reported(None, at((0, 11)))
    commits.want({T0: 12})
    assert commits.to_request() == {}, "beyond the last commit it continues by itself"
    commits.moved(T1)
    commits.done({T1: 7})
    commits.want({T1: 8})
    assert commits.to_request(at_last=True) == {}


def test_a_commit_that_is_done_cannot_fail_any_more(commits: Commits) -> None:
    """Librdkafka commits at its end what was committed already, and is refused in the middle of a rebalance."""
    commits.done({T0: 5})
    assert commits.reported(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), at((0, 5)))
    assert not commits.reported(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), at((0, 6)))


def test_revoked_partitions_are_not_ours_to_commit_and_their_outcome_is_waited_for(commits: Commits) -> None:
    commits.want({T0: 5, T1: 7})
    commits.release([T0], lost=False)
    assert (commits.wanted(), commits.unknown()) == ({T1: 7}, {T0: 5, T1: 7})
    commits.reported(None, at((0, 5)))
    assert commits.unknown() == {T1: 7}
