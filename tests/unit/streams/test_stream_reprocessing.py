"""The steps of a reprocessing, one by one. Run, claim and `_stream_state` are pretended: neither a broker nor Java is started."""

import itertools
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from moldau.lake.reading.limits import NO_LIMITS
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.streams import reprocessing
from moldau.streams.errors import StreamError
from moldau.streams.generations import JobGenerations, Reprocessing, decode_generations
from moldau.streams.reports import JobOrder, JobReport, JobState, OrderKind, QueryReport, decode_order
from moldau.streams.reprocessing import JobReprocessing, reprocess

OLD = JobReport(
    "hours", "a1", "host", 17, "", 1, 1000, 5000, JobState.STOPPED, "/data", settled=True,
    queries=(QueryReport("counts", "r1", 7, positions={"flights": {"0": 5}}),),
)  # fmt: skip


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock()
    board = made.read_if_there.return_value = made.read.return_value
    board.generations_of.return_value, board.process_of.return_value = JobGenerations(last=2), OLD
    monkeypatch.setattr(reprocessing, "StateTopic", Mock(return_value=made))
    return made


def begun(run: Any) -> JobReprocessing:
    """Which has caught up with the job, and has claimed it."""
    plan = Reprocessing(2, "earliest", {}, 1000)
    made = JobReprocessing(
        run, "hours", "", "/data", plan, switch=True, once=False, whole=False, tell=lambda _: None, monotonic=itertools.count(1.0).__next__
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


AWAY = WorldError("no broker answers", retriable=True)


def test_brokers_that_are_away_for_a_short_time_do_not_end_it(topic: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any step, which is done again: the switch is one, with the places that were first written, and the job's report is not lost."""
    claim = Mock(before=OLD, report=OLD)
    monkeypatch.setattr(reprocessing, "JobClaim", Mock(return_value=claim))
    monkeypatch.setattr(reprocessing, "Places", Mock(return_value=Mock(**{"ended.return_value": [], "continued.return_value": []})))
    run = Mock(topics=["flights"], queries=[])
    run.reports.return_value = [QueryReport("counts", "s1", 3, positions={"flights": {"0": 5}})]
    run.furthest.return_value = {"flights": {"0": 5}}
    board = topic.read.return_value
    topic.read.side_effect = [AWAY, board, AWAY, *[board] * 20]
    claim.take.side_effect = [AWAY, None]
    claim.write.side_effect = [AWAY, *[None] * 20]
    claim.switch.side_effect = [AWAY, None, None, None]
    run.become_current.side_effect = [AWAY, None, None]
    topic.write.side_effect = [AWAY, None]
    made = begun(run)
    tried(made, 20)
    assert claim.take.call_count == 2
    assert run.become_current.call_count == 3, "the last time for the record after it"
    switched = {next(iter(call.args[0].values())) for call in claim.switch.call_args_list}
    assert (len(switched), claim.switch.call_count) == (1, 4)
    assert decode_generations(next(iter(switched))).current == 2
    assert decode_generations(next(iter(topic.write.call_args.args[0].values()))).reprocessing is None
    run.limit.assert_called_with(NO_LIMITS)


def tried(made: JobReprocessing, count: int) -> None:
    for _ in range(count):
        made.look()


def test_brokers_that_stay_away_end_it(topic: Mock) -> None:
    """With their error; the same command continues. So does one at once that time does not heal."""
    topic.read.side_effect = AWAY
    made = begun(Mock(topics=["flights"]))
    while topic.read.call_count < reprocessing.AWAY_S / 4:
        made.look()
    with pytest.raises(WorldError, match="no broker answers"):
        tried(made, int(reprocessing.AWAY_S))
    topic.read.side_effect = WorldError("the certificate is not valid", retriable=False)
    with pytest.raises(WorldError, match="certificate"):
        begun(Mock(topics=["flights"]))


def test_the_order_to_settle_outlives_one_for_a_savepoint(topic: Mock) -> None:
    """Which took its place before the job's process had read it: that would run on, and the switch wait without an end."""
    board = topic.board = topic.read.return_value
    board.process_of.return_value = replace(OLD, state=JobState.RUNNING, settled=False)
    run = Mock(topics=["flights"])
    run.reports.return_value = [QueryReport("counts", "s1", 3, positions={"flights": {"0": 5}})]
    made = begun(run)
    orders = [decode_order(each) for call in topic.write.call_args_list for each in call.args[0].values()]
    assert [each.kind for each in orders] == [OrderKind.SETTLE]
    board.orders = {"hours": JobOrder("a1", 7, OrderKind.SAVEPOINT, "/savepoint")}
    board.process_of.return_value = replace(OLD, state=JobState.RUNNING, settled=False, at_ms=7000)
    made.look()
    assert topic.write.call_count == 2
    board.orders = {"hours": decode_order(*topic.write.call_args.args[0].values())}
    assert board.orders["hours"].kind is OrderKind.SETTLE
    board.process_of.return_value = replace(OLD, state=JobState.RUNNING, settled=False, at_ms=9000)
    made.look()
    assert topic.write.call_count == 2, "it is there"


def test_a_switch_that_no_process_has_ended_comes_before_another_one(topic: Mock) -> None:
    """What the job's last process has reported is of the former generation, and not where the current one ends."""
    known = JobGenerations(2, 2, reprocessing=Reprocessing(2, "earliest", {}, 1000))
    topic.read.return_value.generations_of.return_value = known
    run = Mock(topics=["flights"])
    with pytest.raises(StreamError, match="job hours: has switched to generation 2, as which no process has run yet: moldau stream run"):
        reprocess(
            run, "hours", "", "/data", {}, "earliest", "/savepoint", switch=True, once=True, fresh=True, whole=False, tell=lambda _: None
        )
    run.run_beside.assert_not_called()
