"""Starts in a mirror's file that lead to nothing in the source are found before it runs: offsets beyond the end, unknown names."""

from collections.abc import Callable

import pytest

from moldau.mirror.checks import check_file
from moldau.mirror.loops import Severity
from moldau.mirror.operator import Operator
from moldau.mirror.plan.values import MirrorPlan
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0, O1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PLANS = [
    pytest.param(MirrorClusters.merge, "source east", "east.", id="merge"),
    pytest.param(MirrorClusters.copy, "the source", "", id="copy"),
]


async def warnings(operator: Operator) -> list[str]:
    """What begins with [start]."""
    checked = await check_file(operator, "m.toml")
    assert Severity.ERROR not in {each.severity for each in checked.found}
    return [each.text for each in checked.found if each.text.startswith("[start]") and each.severity is Severity.WARNING]


@pytest.mark.parametrize(("plan", "source", "prefix"), PLANS)
def test_a_start_beyond_the_end_is_warned_of_until_the_partition_is_mirrored(
    plan: Callable[..., MirrorPlan], source: str, prefix: str
) -> None:
    """Claim: an offset that is the end is none: the next record has it. Of a partition that was mirrored the start is not looked at."""

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", 2)
        await clusters.source.write(O0, "a", "b")
        starts = "start.topics.orders.partitions = { 0 = 2, 1 = 4 }\n"
        early = plan(clusters, more="start.topics.orders.partitions = { 0 = 1, 1 = 0 }\n")
        async with clusters.operator(plan(clusters, more=starts)) as operator:
            (beyond,) = await warnings(operator)
            assert beyond.startswith(f"[start] is beyond the end of logs of {source}; these partitions wait until")
            assert beyond.endswith(": orders-1 starts at 4 and ends at 0")
            await clusters.source.write(O1, *"cdef")
            assert await warnings(operator) == []
        running = Running(clusters, early)
        await arrives(clusters, f"{prefix}orders", "b")
        await clusters.until(lambda: all(row.position == row.end for row in running.process.control.rows()))
        await running.stop()
        async with clusters.operator(plan(clusters, more="start.topics.orders.offset = 100\n")) as operator:
            assert await warnings(operator) == []

    run(story)


def test_topics_and_partitions_that_the_source_does_not_have_are_named() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", 2)
        more = "start.topics.clicks.offset = 5\nstart.topics.orders.partitions = { 1 = 0, 2 = 0 }\n"
        async with clusters.operator(clusters.merge(more=more)) as operator:
            assert await warnings(operator) == ["[start] names topic clicks, partition orders-2, which source east does not have"]

    run(story)


def test_ends_that_cannot_be_had_are_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders", 2)
        async with clusters.operator(clusters.copy(more="start.topics.orders.offset = 100\n")) as operator:

            async def fails(*_: object, **__: object) -> None:
                raise PeerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")

            monkeypatch.setattr("moldau.mirror.start_offsets.ends_of", fails)
            found = (await check_file(operator, "m.toml")).found
        assert (Severity.NOTICE, "whether starts are beyond the ends of logs of the source is not known: not for you") in {
            (each.severity, each.text) for each in found
        }

    run(story)
