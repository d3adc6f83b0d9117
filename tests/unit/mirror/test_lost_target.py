"""A target that has lost records of a copy gets them again, also where the mirror had no error by which to notice it."""

from moldau.mirror.inventory import source_text
from moldau.mirror.state.reports import State
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0 = TopicPartition("orders", 0)


def test_a_copy_that_was_made_again_between_two_requests_has_everything() -> None:
    async def story(clusters: MirrorClusters) -> None:
        topic_id = await clusters.source.create("orders")
        await clusters.source.write(O0, *"abcde")
        running = Running(clusters, clusters.copy())
        await arrives(clusters, "orders", *"abcde")
        await clusters.target.delete("orders")
        await clusters.target.create("orders", mirror_source=source_text(running.process._inventory.cluster_id("source"), topic_id))
        await clusters.source.write(O0, "f")
        await arrives(clusters, "orders", *"abcdef")
        assert running.row("orders-0").state is State.MIRRORING
        await running.stop()

    run(story)
