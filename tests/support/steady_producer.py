"""A producer that produces numbers all the time while brokers fail, and what is in the topic in the end."""

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from support.local_cluster import LIMIT_S, wait_for

AFTER = 50
"""So many acknowledgements after a fault show that it has continued."""


class SteadyProducer:
    """Numbers in their order to the first partition of `topic`, a few at a time, in a thread; `acknowledged` by all in-sync replicas."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[KafkaError] = []
        self._bootstrap, self._topic = bootstrap, topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_further(self) -> None:
        """Until more was acknowledged than there is now."""
        before = len(self.acknowledged)
        wait_for(lambda: self.failures or len(self.acknowledged) >= before + AFTER)
        assert self.failures == []

    def assert_nothing_lost_or_doubled(self) -> None:
        """What was acknowledged is in the topic, once, in the order in which it was produced, and nothing else. When it has ended."""
        assert self.failures == []
        assert records(self._bootstrap, self._topic) == sorted(self.acknowledged)

    def _run(self) -> None:
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True, "socket.timeout.ms": 2000, "log_level": 0
        })  # fmt: skip

        def delivered(error: KafkaError | None, message: Message) -> None:
            value = message.value()
            assert value is not None
            if error is None:
                self.acknowledged.append(int(value))
            else:
                self.failures.append(error)

        number = 0
        while not self._ends.is_set():
            producer.produce(self._topic, str(number), partition=0, on_delivery=delivered)
            number += 1
            producer.poll(0.005)
        producer.flush(LIMIT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join()


def records(bootstrap: str, topic: str) -> list[int]:
    """All that is in the first partition, in order."""
    first = TopicPartition(topic, 0, 0)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0})
    found: list[int] = []
    try:
        _, end = consumer.get_watermark_offsets(first, timeout=LIMIT_S)
        consumer.assign([first])

        def read_all() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None
                value = message.value()
                assert value is not None
                found.append(int(value))
            return consumer.position([first])[0].offset >= end

        wait_for(read_all)
    finally:
        consumer.close()
    return found
