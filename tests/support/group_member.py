"""One member of a group in a process of its own, with one of the Python clients: what tests/conformance does to groups, it does to these.

    python group_member.py CLIENT BOOTSTRAP GROUP TOPIC [NAME=VALUE ...]

It says on standard output ``assigned 0 1 2`` whenever its partitions are others than before, and ``took PARTITION OFFSET VALUE`` for each
record once the offset behind it is committed. A line ``leave`` on standard input has it leave the group and end. Settings: `session_ms`,
`instance` for a static member, `strategy` for confluent-kafka.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

HEARTBEAT_MS = 200
POLL_MS = 100


class Voice:
    """What a member says, and whether it is to leave."""

    def __init__(self) -> None:
        self.leaving = threading.Event()
        self._assigned: list[int] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def assigned(self, partitions: Iterable[int]) -> None:
        """These are its partitions now."""
        found = sorted(partitions)
        if found != self._assigned:
            self._assigned = found
            print("assigned", *found, flush=True)

    def took(self, partition: int, offset: int, value: bytes) -> None:
        """A record is done with."""
        print("took", partition, offset, value.decode(), flush=True)

    def _listen(self) -> None:
        sys.stdin.readline()
        self.leaving.set()


def confluent(voice: Voice, bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    """confluent-kafka, that is librdkafka."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    wanted: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": int(settings["session_ms"]),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": settings.get("strategy", "range"),
        "log_level": 3,
    }
    if "instance" in settings:
        wanted["group.instance.id"] = settings["instance"]
    held: list[tuple[int, int, bytes]] = []
    """Records whose offsets are not committed yet: in a rebalance they cannot be, and who keeps its partition is not given them again."""

    def revoked(_: Any, places: list[TopicPartition]) -> None:
        held[:] = [each for each in held if each[0] not in {place.partition for place in places}]

    consumer = Consumer(wanted)
    consumer.subscribe([topic], on_revoke=revoked, on_lost=revoked)
    while not voice.leaving.is_set():
        message = consumer.poll(POLL_MS / 1000)
        voice.assigned(place.partition for place in consumer.assignment())
        if message is not None and not message.error():
            held.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
        if held:
            behind = [TopicPartition(topic, partition, offset + 1) for partition, offset, _ in held]
            try:
                consumer.commit(offsets=behind, asynchronous=False)
            except KafkaException:
                continue
            for each in held:
                voice.took(*each)
            held.clear()
    consumer.close()


def kafka_python(voice: Voice, bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    """kafka-python."""
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=settings.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_ms"]),
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while not voice.leaving.is_set():
        found = consumer.poll(timeout_ms=POLL_MS)
        voice.assigned(place.partition for place in consumer.assignment())
        for place, records in found.items():
            try:
                consumer.commit({place: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
            except KafkaError:
                continue
            for record in records:
                voice.took(record.partition, record.offset, record.value)
    consumer.close()


def aiokafka(voice: Voice, bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    """aiokafka."""
    asyncio.run(_aiokafka(voice, bootstrap, group, topic, settings))


async def _aiokafka(voice: Voice, bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    busy = asyncio.Lock()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        """It rebalances beside its user, and would give records again whose offsets are being committed."""

        async def on_partitions_revoked(self, revoked: object) -> None:
            """Wait."""
            async with busy:
                pass

        async def on_partitions_assigned(self, assigned: object) -> None:
            """Nothing to do."""

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=settings.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_ms"]),
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not voice.leaving.is_set():
        found = await consumer.getmany(timeout_ms=POLL_MS)
        voice.assigned(place.partition for place in consumer.assignment())
        async with busy:
            for place, records in found.items():
                behind = records[-1].offset + 1
                if place not in consumer.assignment() or await consumer.position(place) != behind:
                    continue  # it has rebalanced since
                try:
                    await consumer.commit({place: behind})
                except KafkaError:
                    continue
                for record in records:
                    voice.took(record.partition, record.offset, record.value)
    await consumer.stop()


CLIENTS: dict[str, Callable[[Voice, str, str, str, Mapping[str, str]], None]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    _, wanted_client, *where = sys.argv[:5]
    CLIENTS[wanted_client](Voice(), where[0], where[1], where[2], dict(each.split("=", 1) for each in sys.argv[5:]))
