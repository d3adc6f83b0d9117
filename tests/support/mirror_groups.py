"""A mirror of one topic, and groups of consumers that have read some of it in the source."""

import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Where

from moldau.testing import Broker
from support.console import ConsoleInside
from support.mirror_world import MirrorProgram
from support.paper import wait_until

LIMIT_S = 90.0
RECORDS = 600
PARTITIONS = 3
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offset.metadata.max.bytes": 10_000}
MERGE = """
name = "aggregate"
mode = "merge"
naming = "source.topic"
sources.east.bootstrap.servers = "{source}"
target.bootstrap.servers = "{target}"
topics.include = ["orders"]
groups = {{include = [".*"], exclude = ["judge"], interval.ms = 200}}
"""
COPY = MERGE.replace("merge", "copy").replace("sources.east", "source").replace('naming = "source.topic"\n', "")


eventually = partial(wait_until, limit_s=LIMIT_S, pause_s=0.1)


class GroupsWorld:
    """A source with records in `orders`, a target, and a mirror that is not started yet."""

    def __init__(self, directory: Path, text: str) -> None:
        self.source, self.target = Broker(settings=SETTINGS), Broker(settings={"group.initial.rebalance.delay.ms": 0})
        self.source.start()
        self.target.start()
        self.topic = "east.orders" if "merge" in text else "orders"
        self.source.create_topic("orders", PARTITIONS)
        self.file = directory / "mirror.toml"
        self.file.write_text(text.format(source=self.source.bootstrap_servers, target=self.target.bootstrap_servers))
        self.mirrors = [MirrorProgram(self.file, instance, hasty=True) for instance in ("a", "b")]
        self._console = ConsoleInside()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in self.mirrors:
            if each.running:
                each.kill()
        self.source.close()
        self.target.close()

    def produce(self, numbers: range) -> None:
        """Some in transactions, so that offsets differ between the clusters, in batches of a few records."""
        settings: dict[str, Any] = {"bootstrap.servers": self.source.bootstrap_servers, "linger.ms": 0, "batch.num.messages": 5}
        plain, transactional = Producer(settings), Producer({**settings, "transactional.id": "w"})
        transactional.init_transactions(LIMIT_S)
        for number in numbers:
            if number % 7:
                plain.produce("orders", str(number), partition=number % PARTITIONS)
                continue
            assert plain.flush(LIMIT_S) == 0
            transactional.begin_transaction()
            transactional.produce("orders", str(number), partition=number % PARTITIONS)
            transactional.commit_transaction(LIMIT_S)
        assert plain.flush(LIMIT_S) == 0

    def consumer(self, broker: Broker, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,
            }
        )

    def commit(self, broker: Broker, topic: str, group: str, offset: int, partition: int = 0, metadata: str = "") -> None:
        consumer = self.consumer(broker, group)
        consumer.commit(offsets=[Where(topic, partition, offset, metadata=metadata)], asynchronous=False)
        consumer.close()

    def committed(self, group: str, partition: int = 0) -> int:
        """In the target; -1001 for none."""
        consumer = self.consumer(self.target, group)
        (found,) = consumer.committed([Where(self.topic, partition)], LIMIT_S)
        consumer.close()
        return int(found.offset)

    def end(self, partition: int = 0) -> int:
        """Of the target's topic, for readers of committed records; 0 where it does not exist."""
        if self.topic not in self.target.topics():
            return 0
        consumer = self.consumer(self.target, "judge")
        end = consumer.get_watermark_offsets(Where(self.topic, partition), LIMIT_S)[1]
        consumer.close()
        return int(end)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._console("mirror", "status", str(self.file), "--json").json
        return found

    def groups(self) -> dict[str, Any]:
        """As the status has them; before the first report nothing was done."""
        return self.status()["groups"] or {"synced_s_ago": None, "failures": []}

    def a_round_begins_and_ends(self) -> None:
        """A whole round over the groups after now, as the status has it."""
        begin = time.monotonic()

        def is_over() -> bool:
            ago: float | None = self.groups()["synced_s_ago"]
            return ago is not None and ago + 1 < time.monotonic() - begin

        eventually(is_over, "the groups are mirrored")

    @property
    def is_mirrored(self) -> bool:
        totals = self.status()["totals"]
        return (totals["lag_records"], totals["partitions"]) == (0, PARTITIONS)


def read(consumer: Consumer, count: int) -> list[str]:
    """So many records, which are then committed."""
    found = list[str]()
    limit = time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < limit, f"{len(found)} of {count} records"
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value.decode())
    consumer.commit(asynchronous=False)
    return found
