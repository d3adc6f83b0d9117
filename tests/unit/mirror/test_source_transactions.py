"""Transactions of a source, as a merge sees them: open ones hold up what comes after them, which is shown; aborted ones do not arrive."""

import asyncio

from moldau.mirror.measures import HELD_S
from moldau.mirror.state.reports import State
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from support.mirror_clusters import MirrorClusters, run
from support.mirror_running import Running, arrives

O0 = TopicPartition("orders", 0)


def test_a_transaction_that_stays_open_is_shown_as_the_reason_until_it_ends() -> None:
    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        running = Running(clusters, clusters.merge())
        await arrives(clusters, "east.orders", "a")
        producer = SimulatedTransactionalProducer(clusters.source.simulation.client(), "slow", timeout_s=300.0)
        await producer.init_transactions()
        await producer.begin()
        await producer.send_and_wait("orders", "b", partition=0)
        await clusters.source.write(O0, "c")
        await asyncio.sleep(HELD_S / 2)
        assert running.row("orders-0").reason == ""
        await asyncio.sleep(HELD_S)
        row = running.row("orders-0")
        assert (row.state, row.reason) == (
            State.MIRRORING,
            "a transaction is open in the source from offset 1 on; 2 offsets wait for it",
        )
        await producer.abort()
        await arrives(clusters, "east.orders", "a", "c")
        await clusters.until(lambda: running.row("orders-0").reason == "")
        await running.stop()

    run(story)
