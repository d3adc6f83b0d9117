"""Fail-back between two clusters in memory: groups are not left behind the cut, and a command that ended half way is repeated."""

from collections.abc import Sequence

import pytest

from moldau.mirror.fail_back import FailBack, Outcome, State
from moldau.mirror.promotion import Promotion
from moldau.mirror.target_topics import configs_of
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.wire.group import GroupMetadata, commit_offsets, fetch_offsets
from support.mirror_clusters import MirrorCluster, MirrorClusters, run

O0, O1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def promoted(clusters: MirrorClusters, *, partitions: int = 1) -> FailBack:
    """A copy that has got nothing is promoted; both clusters go their ways."""
    await clusters.source.create("orders", partitions)
    await clusters.target.create("orders", partitions, mirror_source="a topic")
    for number in range(partitions):
        await clusters.source.write(TopicPartition("orders", number), "a", "b", "c")
    promotion = Promotion(clusters.target.brokers, None, lambda _: ["orders"])
    done = await promotion.promote(await promotion.prepare(await promotion.partitions(), 1.0))
    assert {each.state.value for each in done} == {"promoted"}
    await clusters.target.write(O0, "x")
    return FailBack(clusters.source.brokers, clusters.target.brokers, lambda _: ["orders"])


def states(outcomes: Sequence[Outcome]) -> list[tuple[State, int, int]]:
    return [(each.state, each.offset, each.end) for each in outcomes]


async def committed(cluster: MirrorCluster, group: str) -> int:
    return (await fetch_offsets(cluster.brokers, group, None))[O0]


def test_groups_beyond_the_cut_are_moved_back_to_it() -> None:
    """Claim: else they would leave out what the new source has at these offsets."""

    async def story(clusters: MirrorClusters) -> None:
        failing_back = await promoted(clusters)
        for group, offset in (("billing", 3), ("late", 0)):
            await commit_offsets(clusters.source.brokers, GroupMetadata(group), {O0: offset}, metadata={O0: "mine"})
        done = await failing_back.follow(await failing_back.partitions(), None, discards=True)
        assert states(done) == [(State.FOLLOWS, 0, 3)]
        assert [await committed(clusters.source, group) for group in ("billing", "late")] == [0, 0]

    run(story)


@pytest.mark.parametrize(
    "step",
    ["moldau.mirror.altering.confirm", "moldau.mirror.fail_back.FailBack._moved_groups", "moldau.mirror.fail_back.FailBack._cut"],
)
def test_a_command_that_ended_between_two_steps_is_repeated(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: clients cannot write in between, nothing was cut that was not named, and the second command has the same outcome."""

    async def story(clusters: MirrorClusters) -> None:
        failing_back = await promoted(clusters, partitions=2)
        await commit_offsets(clusters.source.brokers, GroupMetadata("billing"), {O0: 3})
        partitions = await failing_back.partitions()

        async def ends(*_: object, **__: object) -> None:
            raise WorldError("the operator's host fails", retriable=False)

        with monkeypatch.context() as patch:
            patch.setattr(step, ends)
            with pytest.raises(WorldError, match="host fails"):
                await failing_back.follow(partitions, None, discards=True)
        source = (await configs_of(clusters.source.brokers, "orders", frozenset()))["mirror.source"]
        assert source.startswith("pending fail-back to ")
        assert await clusters.source.values(O0) == ["a", "b", "c"]
        done = await failing_back.follow(await failing_back.partitions(), None, discards=True)
        assert states(done) == [(State.FOLLOWS, 0, 3)] * 2
        assert await committed(clusters.source, "billing") == 0
        again = await failing_back.follow(await failing_back.partitions(), None, discards=False)
        assert states(again) == [(State.FOLLOWS, 0, 0)] * 2

    run(story)
