"""A process of a mirror from its start to its end, between two clusters in memory: what it does by itself, and what it does as a worker."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from moldau.mirror.control import REPORT_S, share_of
from moldau.mirror.merge.merge import TRANSACTION_TIMEOUT_S
from moldau.mirror.merge.writer import Writer
from moldau.mirror.patterns import parse_pattern
from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.process import LOOK_S, transactional_id
from moldau.mirror.selection import Action, Change
from moldau.mirror.sharing.shares import Share
from moldau.mirror.sharing.work import FencedInstanceError
from moldau.mirror.state.orders import Accepted, Pause, Scope, accepted_record, change_record, pause_record
from moldau.mirror.state.reports import State
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0, C0 = TopicPartition("orders", 0), TopicPartition("clicks", 0)
PLANS = [pytest.param(MirrorClusters.merge, "east", "east.", id="merge"), pytest.param(MirrorClusters.copy, "source", "", id="copy")]
Plan = Callable[[MirrorClusters], MirrorPlan]


@pytest.mark.parametrize(("plan", "source", "prefix"), PLANS)
def test_from_its_start_to_its_end(plan: Plan, source: str, prefix: str) -> None:
    """Claim: what the sources have is mirrored, what comes is too; numbers are those of what was mirrored; the last report has the end."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a", "b")
        running = Running(clusters, plan(clusters))
        await arrives(clusters, f"{prefix}orders", "a", "b")
        await clusters.source.write(O0, "c")
        await arrives(clusters, f"{prefix}orders", "a", "b", "c")
        await asyncio.sleep(REPORT_S + 1.5)
        process = running.process
        row = running.row("orders-0")
        assert (row.state, row.position, row.end, row.source) == (State.MIRRORING, 3, 3, source)
        assert process.rates()[Share(source, "orders", 0)] > 0
        assert (process.failure(), process.transactions() > 0) == ("", source == "east")
        await running.stop()
        board = await running.board()
        assert board.processes["1"].ended
        assert [(row.name, row.position) for row in board.rows("1")] == [("orders-0", 3)]

    run(story)


@pytest.mark.parametrize(("plan", "source", "prefix"), PLANS)
def test_the_next_process_continues_where_the_last_one_was(plan: Plan, source: str, prefix: str) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a", "b")
        for instance, value in (("1", "c"), ("2", "d")):
            running = Running(clusters, plan(clusters), instance)
            await clusters.source.write(O0, value)
            await arrives(clusters, f"{prefix}orders", *"abcd"[: int(instance) + 2])
            await running.stop()

    run(story)


def test_topics_that_come_and_partitions_that_are_added_are_found() -> None:
    """Claim: at the next look, or at once where an order selects them."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 1)
        await clusters.source.create("clicks", 2)
        await asyncio.sleep(2 * LOOK_S)
        await clusters.until(lambda: len(running.process.control.partitions) == 3)
        await clusters.source.create("web")
        await clusters.target.state(change_record("m", Change(Action.ADD, parse_pattern("web")), "me", 1))
        await clusters.until(lambda: any(row.name == "web-0" for row in running.process.control.rows()))
        await running.stop()

    run(story)


def test_a_process_whose_target_is_away_says_so_and_begins_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: it neither ends nor stays silent: the reason is in `failure`, and counted."""
    monkeypatch.setattr("moldau.mirror.target_topics.INSIST_S", 3.0)

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        clusters.target.kill()
        running = Running(clusters, clusters.merge())
        await asyncio.sleep(12.0)
        process = running.process
        assert not running.task.done()
        assert "target-broker:9092" in process.failure()
        assert process.retry_count > 0
        await clusters.target.begin()
        await arrives(clusters, "east.orders", "a")
        assert process.failure() == ""
        await running.stop()

    run(story)


def test_the_end_of_a_process_that_never_began_waits_for_nothing() -> None:
    async def story(clusters: MirrorClusters) -> None:
        clusters.target.kill()
        running = Running(clusters, clusters.merge())
        await asyncio.sleep(1.0)
        begun_s = clusters.clock.monotonic()
        await running.stop()
        assert clusters.clock.monotonic() - begun_s < 6.0

    run(story)


def test_while_a_source_is_away_another_look_is_logged_and_the_rest_is_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("moldau.mirror.catalog.INSIST_S", 3.0)

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, clusters.merge())
        await arrives(clusters, "east.orders", "a")
        clusters.source.kill()
        await asyncio.sleep(15.0)
        assert running.row("orders-0").state is State.RETRYING
        named = "broker does not answer, trying again: mirror=m cluster=source east broker=broker:9092 reason=cannot connect"
        assert any(named in each.getMessage() for each in caplog.records)
        await clusters.source.begin()
        await clusters.source.write(O0, "b")
        await arrives(clusters, "east.orders", "a", "b")
        await running.stop()

    run(story)


def test_a_bug_in_a_look_is_logged_and_the_next_look_follows(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 1)

        async def breaks() -> None:
            raise ValueError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(running.process._inventory, "look", breaks)
            await asyncio.sleep(2 * LOOK_S)
        assert "topics not looked at because of a bug: mirror=m" in {each.getMessage() for each in caplog.records}
        await clusters.source.create("clicks")
        await clusters.until(lambda: len(running.process.control.partitions) == 2)
        await running.stop()

    run(story)


def test_a_failed_look_is_the_reason_of_the_process_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 1)

        async def fails() -> None:
            raise WorldError("the target is busy", retriable=True)

        with monkeypatch.context() as patch:
            patch.setattr(running.process._inventory, "look", fails)
            await asyncio.sleep(2 * LOOK_S)
            assert running.process.failure() == "the target is busy"
        await clusters.until(lambda: running.process.failure() == "")
        await running.stop()

    run(story)


def test_of_two_processes_with_one_name_the_first_ends_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Claim: it mirrors nothing after that; the second one has everything. The logs of both name the other one."""
    caplog.set_level(logging.WARNING, "moldau.mirror")

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        first = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(first.process.control.partitions) == 1)
        assert caplog.messages == []
        second = Running(clusters, clusters.merge(), pid=4712)
        await clusters.until(first.task.done)
        error = (
            r"another process \(host here, pid 4712\) runs as instance 1 of mirror m now, and this one ends; give each its own --instance"
        )
        with pytest.raises(FencedInstanceError, match=error):
            first.task.result()
        assert first.process.control.partitions == {}
        began, ended = [line.partition(" generation=")[0].partition(" reported_s_ago=")[0] for line in caplog.messages]
        assert began == (
            "takes over this instance from another process, which ends if it still runs: mirror=m instance=1 host=here pid=4711"
        )
        assert ended == "another process has taken over this instance; this one drops its partitions and ends: mirror=m instance=1"
        report = (await second.board()).processes["1"]
        assert (report.pid, report.ended) == (4712, False), "the first one does not report that it has ended"
        await clusters.until(lambda: len(second.process.control.partitions) == 1)
        await clusters.source.write(O0, "a")
        await arrives(clusters, "east.orders", "a")
        await second.stop()

    run(story)


def test_two_processes_share_the_partitions_and_the_rest_get_those_of_one_that_ends() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", 4)
        running = [Running(clusters, clusters.merge(), instance) for instance in ("1", "2")]
        await clusters.until(lambda: [len(each.process.control.partitions) for each in running] == [2, 2])
        await running[0].stop()
        await clusters.until(lambda: len(running[1].process.control.partitions) == 4)
        await clusters.source.write(O0, "a")
        await arrives(clusters, "east.orders", "a")
        await running[1].stop()

    run(story)


def test_what_a_process_that_departed_left_open_is_ended_before_its_partitions_are_given() -> None:
    """Claim: its transaction is aborted, as its transactional id is fenced: it can commit nothing later."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 1)
        departed = Writer(clusters.target.connect(), transactional_id("m", "2"), TRANSACTION_TIMEOUT_S)
        await departed.begin_again()
        before = departed.producer_id
        await running.process.assign([], ["2"])
        successor = Writer(clusters.target.connect(), transactional_id("m", "2"), TRANSACTION_TIMEOUT_S)
        await successor.begin_again()
        assert successor.producer_id == before
        assert successor._identity[1] == departed._identity[1] + 2, "raised by the process, too"
        await running.stop()

    run(story)


def test_a_share_that_is_found_only_later_is_mirrored_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: the group has given it to this process, and gives it to no other, so each look at the topics looks for it too."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 1)
        monkeypatch.setattr(running.process._shared, "see", lambda *_: None)
        await running.process.assign([Share("east", "clicks", 0)], [])
        await clusters.source.create("clicks")
        await clusters.source.write(TopicPartition("clicks", 0), "a")
        await arrives(clusters, "east.clicks", "a")
        await running.process.assign([Share("east", "orders-1", 0)], [])
        await running.process.revoke([Share("east", "orders-1", 0)])
        await clusters.source.create("orders-1")
        await asyncio.sleep(2 * LOOK_S)
        assert {each.topic for each in running.process.control.partitions.values()} == {"orders", "clicks"}
        await running.stop()

    run(story)


def test_a_share_that_no_source_has_is_logged_and_the_others_are_mirrored(caplog: pytest.LogCaptureFixture) -> None:
    """Claim: one that is new is looked for first."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 1)
        await clusters.source.create("clicks")
        await running.process.assign([Share("east", "clicks", 0), Share("east", "gone", 3)], [])
        assert sorted(each.topic for each in running.process.control.partitions.values()) == ["clicks", "orders"]
        assert any("partition assigned that is not there" in each.getMessage() and "gone" in each.getMessage() for each in caplog.records)
        await running.stop()

    run(story)


@pytest.mark.parametrize(("plan", "source", "prefix"), PLANS)
def test_a_process_that_the_group_has_lost_drops_everything(plan: Plan, source: str, prefix: str) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, plan(clusters))
        await arrives(clusters, f"{prefix}orders", "a")
        process = running.process
        await process.lost()
        assert (process.control.partitions, process.rates(), process._engine.written()) == ({}, {}, {})
        await clusters.source.write(O0, "b")
        await asyncio.sleep(1.0)
        assert await clusters.target.values(TopicPartition(f"{prefix}orders", 0)) == ["a"]
        await running.stop()

    run(story)


def test_a_copy_begins_after_the_gap_that_was_accepted() -> None:
    """Claim: an order of before the start is in force; the target's log begins where the source has records."""

    async def story(clusters: MirrorClusters) -> None:
        topic_id = await clusters.source.create("orders")
        await clusters.source.write(O0, *"abcd")
        first = Running(clusters, clusters.copy())
        await arrives(clusters, "orders", *"abcd")
        await first.stop()
        await clusters.source.write(O0, *"efg")
        await clusters.source.trim(O0, 6)
        second = Running(clusters, clusters.copy())
        await clusters.until(lambda: any(row.state is State.OUT_OF_RETENTION for row in second.process.control.rows()))
        await clusters.target.state(accepted_record("m", Accepted("source", "orders", 0, topic_id, 6, "me", 1)))
        await arrives(clusters, "orders", *"abcd", "g")
        await second.stop()

    run(story)


def test_a_partition_that_is_assigned_while_it_is_paused_is_not_mirrored() -> None:
    async def story(clusters: MirrorClusters) -> None:
        for where in (O0, C0):
            await clusters.source.create(where.topic)
            await clusters.source.write(where, "a")
        await clusters.target.state(pause_record("m", Scope("orders"), Pause("ann", 1)))
        running = Running(clusters, clusters.merge())
        await arrives(clusters, "east.clicks", "a")
        assert [share_of(each) for each in running.process._engine.written()] == [Share("east", "clicks", 0)]
        assert running.row("orders-0").state is State.PAUSED
        await running.stop()

    run(story)


def test_a_target_that_refuses_for_good_is_tried_again_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Claim: rights can be given while a process runs: it does not end, and has the reason in its log once a minute."""
    caplog.set_level(logging.WARNING)

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        refusals = []

        async def refuses(*_: Any) -> None:
            refusals.append(1)
            raise PeerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic _mirror_state: topic_authorization_failed")

        with monkeypatch.context() as patch:
            patch.setattr("moldau.mirror.control.create", refuses)
            running = Running(clusters, clusters.merge())
            await asyncio.sleep(30.0)
        assert len(refusals) > 5
        assert running.process.failure() == "topic _mirror_state: topic_authorization_failed"
        lines = [each.getMessage() for each in caplog.records if "trying again: mirror=m" in each.getMessage()]
        assert lines == ["trying again: mirror=m reason=topic _mirror_state: topic_authorization_failed"]
        await clusters.until(lambda: len(running.process.control.partitions) == 1)
        await running.stop()

    run(story)
