"""A process of a mirror and its clusters: those that are the same are refused, one that is away is named and holds up no other."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from moldau.mirror.inventory import SameClusterError
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.reachability import LOGGED_EACH_S
from moldau.mirror.state.reports import State
from moldau.mirror.state.topic import STATE
from moldau.model.identity import TopicPartition
from moldau.wire.connection import RequestLostError
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0 = TopicPartition("orders", 0)


def between(target: str, more: str = "", **sources: str) -> MirrorPlan:
    """A merge of `orders` from these addresses."""
    lines = [
        *('name = "m"', 'mode = "merge"', f'target.bootstrap.servers = "{target}"', 'topics.include = ["orders"]'),
        *(f'sources.{name}.bootstrap.servers = "{servers}"' for name, servers in sources.items()),
        more,
    ]
    return parse_plan("\n".join(lines), "m.toml")


def copy_into_itself(clusters: MirrorClusters) -> MirrorPlan:
    text = f"""
        name = "m"
        mode = "copy"
        source.bootstrap.servers = "{clusters.target.servers}"
        target.bootstrap.servers = "{clusters.target.servers}"
        topics.include = ["orders"]
    """
    return parse_plan(text, "m.toml")


REFUSED: list[tuple[str, Callable[[MirrorClusters], MirrorPlan], str]] = [
    ("copy", copy_into_itself, "source and the target are the same cluster, .+"),
    (
        "merge",
        lambda clusters: between(clusters.target.servers, east=clusters.source.servers, west=clusters.target.servers),
        "source west and the target are the same cluster, .+",
    ),
    (
        "twice",
        lambda clusters: between(clusters.target.servers, east=clusters.source.servers, west=clusters.source.servers),
        "sources east and west are the same cluster, .+: its records would be merged twice",
    ),
]


@pytest.mark.parametrize(("plan", "error"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_clusters_that_are_the_same_are_refused_before_anything_is_done(plan: Callable[[MirrorClusters], MirrorPlan], error: str) -> None:
    async def story(clusters: MirrorClusters) -> None:
        for each in (clusters.source, clusters.target):
            await each.create("orders")
        running = Running(clusters, plan(clusters))
        with pytest.raises(SameClusterError, match=f"^{error}$"):
            await running.task
        async with clusters.operator(clusters.merge()) as operator:
            assert STATE.topic not in (await operator.target_catalog()).topics

    run(story)


def away(running: Running, source: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have nothing of a source answer, until the list that this returns is emptied."""
    brokers = running.process._sources[source]
    ask, is_away = brokers.ask, [1]

    async def answers(*given: Any, **options: Any) -> Any:
        if is_away:
            raise RequestLostError(("west", 9092), "cannot connect: no route to host", was_sent=False)
        return await ask(*given, **options)

    monkeypatch.setattr(brokers, "ask", answers)
    return is_away


def test_a_source_that_turns_out_to_be_another_one_halts_and_the_other_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: where that is known only later, the process does not end: the second one in the file halts, and nothing is doubled."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, between(clusters.target.servers, east=clusters.source.servers, west=clusters.source.servers))
        is_away = away(running, "west", monkeypatch)
        await arrives(clusters, "orders", "a")
        is_away.clear()
        await clusters.until(lambda: any(row.state is State.REFUSED for row in running.process.control.rows()))
        (row,) = [row for row in running.process.control.rows() if row.state is State.REFUSED]
        assert (row.source, row.topic, row.number) == ("west", "orders", -1)
        assert re.fullmatch("sources east and west are the same cluster, .+: its records would be merged twice", row.reason)
        await clusters.source.write(O0, "b")
        await arrives(clusters, "orders", "a", "b")
        await running.stop()

    run(story)


def test_a_source_that_is_away_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: within seconds the others are mirrored, and the status has which one is away, and why."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, between(clusters.target.servers, west="west:9092", east=clusters.source.servers))
        away(running, "west", monkeypatch)
        async with asyncio.timeout(20.0):
            await arrives(clusters, "orders", "a")
        assert running.process.failure() == "source west: west:9092: cannot connect: no route to host"
        assert running.process._shared._sharing._seen["west"] is None, "as the leader it would take its partitions from their members"
        await running.stop()

    run(story)


def test_a_cluster_that_cannot_be_reached_is_named_at_once_then_each_minute_and_when_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Claim: the lines have cluster, broker and cause, one at a time, whatever part of the process has failed by it."""
    caplog.set_level(logging.WARNING, "moldau.mirror")

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        clusters.target.kill()
        running = Running(clusters, clusters.merge())
        await asyncio.sleep(1.0)
        begin = "broker does not answer, trying again: mirror=m cluster=target broker=target-broker:9092 reason="
        assert [line.startswith(begin) for line in caplog.messages] == [True]
        await asyncio.sleep(2 * LOGGED_EACH_S + 10.0)
        ours = [line for line in caplog.messages if line.startswith(begin)]
        assert len(ours) == 3, ours
        assert caplog.messages == ours, "nothing else has it again"
        clusters.target.simulation.host.start()
        await clusters.until(lambda: len(running.process.control.partitions) == 1)
        (line,) = caplog.messages[len(ours) :]
        assert line.startswith("broker answers again: mirror=m cluster=target broker=target-broker:9092 after_s=1")
        await running.stop()

    run(story)
