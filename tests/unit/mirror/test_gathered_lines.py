"""Log lines about partitions: what happens to many of them at once, for one reason, is one line."""

import asyncio
import logging

import pytest

from moldau.mirror.gathered_lines import GATHER_S, LOGGED_EACH_S, GatheredLines
from moldau.model.identity import TopicPartition
from moldau.testing.clock import FakeClock
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running

_LOG = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def test_partitions_of_one_text_are_one_line_and_of_many_some_are_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    lines = GatheredLines(_LOG, clock)
    for number in reversed(range(7)):
        lines.add(TopicPartition("orders", number), logging.WARNING, "not fetched: reason=%s", "100% busy")
    lines.add(TopicPartition("clicks", 0), logging.ERROR, "halts: reason=%s", "deleted")
    assert caplog.messages == []
    clock.advance(GATHER_S)
    assert caplog.messages == [
        "not fetched: reason=100% busy partitions=orders-0,orders-1,orders-2,orders-3,orders-4 and_more=2",
        "halts: reason=deleted partitions=clicks-0",
    ]
    assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.ERROR]


def test_a_partition_has_a_text_once_in_a_while_and_the_others_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    lines = GatheredLines(_LOG, clock)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for partitions, logged in (([first], ["orders-0"]), ([first], []), ([first, second], ["orders-1"])):
        for each in partitions:
            lines.add(each, logging.WARNING, "busy")
        clock.advance(GATHER_S)
        assert [line.removeprefix("busy partitions=") for line in caplog.messages] == logged
        caplog.clear()
    clock.advance(LOGGED_EACH_S)
    lines.add(first, logging.WARNING, "busy")
    lines.flush()
    assert caplog.messages == ["busy partitions=orders-0"], "at the end nothing waits"
    clock.advance(GATHER_S)
    assert len(caplog.messages) == 1


def test_a_topic_that_is_deleted_is_few_lines_whatever_partitions_it_has(caplog: pytest.LogCaptureFixture) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", 12)
        running = Running(clusters, clusters.merge())
        await clusters.until(lambda: len(running.process.control.partitions) == 12)
        await asyncio.sleep(1.0)
        await clusters.source.delete("orders")
        await clusters.until(lambda: len(running.process.control.halted) == 12)
        await running.stop()
        halts = [line for line in caplog.messages if line.startswith("partition halts: ")]
        assert [line.partition(" partitions=")[2] for line in halts] == ["orders-0,orders-1,orders-2,orders-3,orders-4 and_more=7"]
        assert len(caplog.messages) <= 5, caplog.messages

    run(story)


def test_a_target_that_is_away_has_one_line_whatever_the_process_does(caplog: pytest.LogCaptureFixture) -> None:
    """Claim: what is stored, ordered and shared fails by it, too; the cause is logged once, beside what was cut off at its end."""

    async def story(clusters: MirrorClusters) -> None:
        for topic in ("orders", "clicks"):
            await clusters.source.create(topic, 6)
        running = Running(clusters, clusters.copy())
        await clusters.until(lambda: len(running.process.control.partitions) == 12)
        await asyncio.sleep(1.0)
        clusters.target.kill()
        await clusters.source.write(TopicPartition("orders", 0), "a")
        await asyncio.sleep(30.0)
        away = [line for line in caplog.messages if "cannot connect" in line]
        assert len(away) == 1, away
        assert away[0].startswith("broker does not answer, trying again: mirror=m cluster=target ")
        await running.stop()

    run(story)
