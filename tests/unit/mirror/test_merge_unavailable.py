"""A partition of a merge's target that takes no records stands still alone, with its reason; it has everything once it takes some."""

import pytest

from moldau.mirror.merge.merge import Merge
from moldau.mirror.state.reports import State
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

FREE, STUCK = TopicPartition("clicks", 0), TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def as_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have brokers want as many replicas in sync as a topic says, also where it has fewer replicas."""
    monkeypatch.setattr("moldau.broker.replicas.partition.effective_minimum", lambda least, _replicas: least)


def test_others_are_mirrored_while_one_has_too_few_replicas(caplog: pytest.LogCaptureFixture) -> None:
    async def story(clusters: MirrorClusters) -> None:
        for topic in ("clicks", "orders"):
            await clusters.source.create(topic)
        await clusters.target.create("east.orders", min_insync_replicas=2)
        await clusters.source.write(STUCK, "s1", "s2")
        running = Running(clusters, clusters.merge(more="sync.configs = false"))
        for value in ("f1", "f2", "f3"):
            await clusters.source.write(FREE, value)
            await arrives(clusters, "east.clicks", *["f1", "f2", "f3"][: int(value[1])])
        await clusters.source.write(STUCK, "s3")
        await clusters.until(lambda: running.row("orders-0").state is State.RETRYING)
        assert ErrorCode.NOT_ENOUGH_REPLICAS.name in running.row("orders-0").reason.upper().replace(" ", "_"), running.row("orders-0")
        assert running.row("clicks-0").state is State.MIRRORING
        await clusters.target.configure("east.orders", min_insync_replicas=1)
        await arrives(clusters, "east.orders", "s1", "s2", "s3")
        await clusters.until(lambda: running.row("orders-0").state is State.MIRRORING)
        await running.stop()

    run(story)
    assert [record.getMessage() for record in caplog.records if "takes no records" in record.getMessage()]


def test_one_that_stands_still_for_long_does_not_fill_the_buffer_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: what goes to it is not fetched beyond one answer, so the others have room, and its retries are seldom."""
    begun: list[float] = []
    again = Merge._begin_again

    async def counted(self: Merge) -> None:
        begun.append(self._clock.monotonic())
        await again(self)

    monkeypatch.setattr(Merge, "_begin_again", counted)

    async def story(clusters: MirrorClusters) -> None:
        for topic in ("clicks", "orders"):
            await clusters.source.create(topic)
        await clusters.target.create("east.orders", min_insync_replicas=2)
        limits = 'sync.configs = false\nlimits."buffer.bytes" = 1048576\nlimits."max.partition.fetch.bytes" = 262144'
        running = Running(clusters, clusters.merge(more=limits))
        for _ in range(20):
            await clusters.source.write(STUCK, *["s" * 100_000] * 2)
        begun_s, values = clusters.clock.monotonic(), [str(number) for number in range(60)]
        for value in values:
            await clusters.source.write(FREE, value)
            await arrives(clusters, "east.clicks", *values[: int(value) + 1])
        took_s = clusters.clock.monotonic() - begun_s
        assert took_s < 60, "the waits of the test itself are 30 s"
        assert len(begun) <= 8 + took_s / 5
        await running.stop()

    run(story)
