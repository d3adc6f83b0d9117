"""The steps of a reprocessing, one by one. Run, claim and `_stream_state` are pretended: neither a broker nor Java is started."""

from typing import Any
from unittest.mock import Mock

import pytest

from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.streams import reprocessing
from moldau.streams.generations import JobGenerations, Reprocessing
from moldau.streams.reports import JobReport, JobState, QueryReport
from moldau.streams.reprocessing import JobReprocessing

OLD = JobReport(
    "hours", "a1", "host", 17, "", 1, 1000, 5000, JobState.STOPPED, "/data", settled=True,
    queries=(QueryReport("counts", "r1", 7, positions={"flights": {"0": 5}}),),
)  # fmt: skip


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock()
    board = made.read.return_value
    board.generations_of.return_value, board.process_of.return_value = JobGenerations(last=2), OLD
    monkeypatch.setattr(reprocessing, "StateTopic", Mock(return_value=made))
    return made


def begun(run: Any) -> JobReprocessing:
    """Which has caught up with the job, and has claimed it."""
    plan = Reprocessing(2, "earliest", {}, 1000)
    made = JobReprocessing(
        run, "hours", "", "/data", plan, switch=True, once=False, whole=False, tell=lambda _: None, monotonic=lambda: 1.0
    )
    made.look()
    return made


def test_a_topic_that_is_new_to_the_job_stands_still_while_it_switches(topic: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that come meanwhile would keep the queries of the new generation busy, and the job down."""
    monkeypatch.setattr(reprocessing, "JobClaim", Mock(return_value=Mock(before=OLD)))
    run = Mock(topics=["flights", "planes"])
    run.reports.return_value = [QueryReport("counts", "s1", 3, positions={"flights": {"0": 5}, "planes": {"0": 8}})]
    run.furthest.return_value = {"flights": {"0": 5}, "planes": {"0": 8}}
    begun(run)
    limits = run.limit.call_args.args[0]
    partitions = [TopicPartition(topic, 0) for topic in ("flights", "planes")]
    assert limits.limit(dict.fromkeys(partitions, 20), dict.fromkeys(partitions, 0)) == dict(zip(partitions, (5, 8), strict=True))


def test_the_end_of_a_switch_that_cannot_be_reported(topic: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with the error that it had, and the connections are closed."""
    claim = Mock(before=OLD)
    monkeypatch.setattr(reprocessing, "JobClaim", Mock(return_value=claim))
    run = Mock(topics=["flights"])
    run.reports.return_value = [QueryReport("counts", "s1", 3, positions={"flights": {"0": 5}})]
    run.furthest.return_value = {"flights": {"0": 5}}
    made = begun(run)
    claim.write.side_effect = WorldError("no broker answers", retriable=True)
    made.end()
    claim.write.assert_called_once()
    topic.close.assert_called_once()
