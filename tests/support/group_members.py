"""A member of a group, as a program with one of the Python clients; those in other languages speak the same words.

    python group_members.py CLIENT BOOTSTRAP TOPIC GROUP [ASSIGNOR [INSTANCE]]

It says `assigned 0 2`: these partitions it has now; `taking 0 17 25`: it has polled the records of partition 0 from offset 17 to 24 and is
about to commit 25; `took 0 17 25`: that is committed; `unsure 0 17 25`: it may be, the client lost the answer. SIGTERM: leave. SIGUSR1:
print where each thread is.
"""

import asyncio
import faulthandler
import signal
import sys
from typing import Any

SESSION_MS = 10_000
"""For a busy machine: a static member that is started again is back before, and kafkajs may end where its session did."""
HEARTBEAT_MS = 300
Ranges = dict[int, tuple[int, int]]


def say(*words: object) -> None:
    """A line at once."""
    print(*words, flush=True)


class Untaken:
    """Per partition what was polled and is not committed, from an offset up to another; of partitions that are gone nothing."""

    def __init__(self) -> None:
        self.ranges: Ranges = {}

    def polled(self, partition: int, offset: int) -> None:
        """A record, in order."""
        first, _ = self.ranges.get(partition, (offset, offset))
        self.ranges[partition] = first, offset + 1

    def taking(self) -> Ranges:
        """A commit is about to be made: of all of it."""
        for partition, (first, end) in self.ranges.items():
            say("taking", partition, first, end)
        return dict(self.ranges)

    def took(self, ranges: Ranges) -> None:
        """It succeeded; meanwhile some of it may have been revoked."""
        for partition, (first, end) in ranges.items():
            say("took", partition, first, end)
        self.gone(*ranges)

    def gone(self, *partitions: int) -> None:
        """Revoked, or done with."""
        for partition in partitions:
            self.ranges.pop(partition, None)


class Leaving:
    """Whether SIGTERM came: looked at between two polls only, so that a commit and the word about it stay together."""

    def __init__(self) -> None:
        self.wished = False
        signal.signal(signal.SIGTERM, self._wish)

    def _wish(self, *_: object) -> None:
        self.wished = True


def confluent(bootstrap: str, topic: str, group: str, assignor: str = "range", instance: str = "") -> None:
    """confluent-kafka."""
    import confluent_kafka
    from confluent_kafka import TopicPartition

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS, "auto.offset.reset": "earliest"}
    settings |= {"partition.assignment.strategy": assignor, "fetch.wait.max.ms": 50}
    if instance:
        settings |= {"group.instance.id": instance}
    untaken = Untaken()
    mine: set[int] = set()

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        mine.update(entry.partition for entry in partitions)
        say("assigned", *sorted(mine))

    def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
        mine.difference_update(entry.partition for entry in partitions)
        untaken.gone(*(entry.partition for entry in partitions))

    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    leaving = Leaving()
    while not leaving.wished:
        wait_s = 0.1
        for _ in range(50):  # not `consume`: it may return records of partitions that are revoked meanwhile
            if (message := consumer.poll(wait_s)) is None:
                break
            if message.error() is None:
                untaken.polled(message.partition() or 0, message.offset() or 0)
            wait_s = 0.0
        if not untaken.ranges:
            continue
        ranges = untaken.taking()
        try:
            offsets = [TopicPartition(topic, partition, end) for partition, (_, end) in ranges.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            continue
        untaken.took(ranges)
    consumer.close()


def kafka_python(bootstrap: str, topic: str, group: str) -> None:
    """kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.errors import CommitFailedError, RebalanceInProgressError
    from kafka.structs import OffsetAndMetadata

    untaken = Untaken()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: list[Any]) -> None:
            say("assigned", *sorted(entry.partition for entry in assigned))

        def on_partitions_revoked(self, revoked: list[Any]) -> None:
            untaken.gone(*(entry.partition for entry in revoked))

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
    )
    consumer.subscribe([topic], listener=Listener())
    leaving = Leaving()
    while not leaving.wished:
        for records in consumer.poll(100, max_records=50).values():
            for record in records:
                untaken.polled(record.partition, record.offset)
        if not untaken.ranges:
            continue
        ranges = untaken.taking()
        try:
            consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(end, "", -1) for partition, (_, end) in ranges.items()})
        except (CommitFailedError, RebalanceInProgressError):
            continue
        untaken.took(ranges)
    consumer.close()


async def aiokafka(bootstrap: str, topic: str, group: str) -> None:
    """aiokafka."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.errors import CommitFailedError, IllegalStateError, RebalanceInProgressError

    untaken = Untaken()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: list[Any]) -> None:
            say("assigned", *sorted(entry.partition for entry in assigned))

        async def on_partitions_revoked(self, revoked: list[Any]) -> None:
            untaken.gone(*(entry.partition for entry in revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
    )
    consumer.subscribe([topic], listener=Listener())
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    await consumer.start()
    while not leaving.is_set():
        for records in (await consumer.getmany(timeout_ms=100, max_records=50)).values():
            for record in records:
                untaken.polled(record.partition, record.offset)
        if not untaken.ranges:
            continue
        ranges = untaken.taking()
        try:
            await consumer.commit({TopicPartition(topic, partition): end for partition, (_, end) in ranges.items()})
        except (CommitFailedError, RebalanceInProgressError, IllegalStateError):
            continue
        untaken.took(ranges)
    await consumer.stop()


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    client, *arguments = sys.argv[1:]
    if client == "aiokafka":
        asyncio.run(aiokafka(*arguments))
    else:
        {"confluent": confluent, "kafka-python": kafka_python}[client](*arguments)
