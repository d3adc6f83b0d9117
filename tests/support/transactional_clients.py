"""Transactional producers of other people, behind one set of words: each method answers ``"ok"`` or the name of the client's error."""

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from support.java import java_command

LIMIT_S = 30.0


class TransactionalClient(Protocol):
    """One producer with a transactional id."""

    def init(self) -> str:
        """Get ready; whoever had the id is fenced."""

    def begin(self) -> str:
        """Begin a transaction."""

    def send(self, topic: str, partition: int, value: str) -> str:
        """Produce a record, with no answer yet."""

    def flush(self) -> str:
        """Wait until all is answered."""

    def offset(self, group: str, topic: str, offset: int) -> str:
        """Commit an offset of partition 0 with the transaction."""

    def commit(self) -> str:
        """Commit."""

    def abort(self) -> str:
        """Abort."""

    def close(self) -> None:
        """Leave, whatever is open."""


class ConfluentTransactions:
    """confluent-kafka, which is librdkafka: the older protocol."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._failed: list[str] = []
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
        self._producer = Producer(settings)

    def init(self) -> str:
        return self._try(lambda: self._producer.init_transactions(LIMIT_S))

    def begin(self) -> str:
        return self._try(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> str:
        return self._try(lambda: self._producer.produce(topic, value.encode(), partition=partition, on_delivery=self._delivered))

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(str(error).partition("code=")[2].partition(",")[0])

    def flush(self) -> str:
        assert self._producer.flush(LIMIT_S) == 0
        failed, self._failed = self._failed, []
        return failed[0] if failed else "ok"

    def offset(self, group: str, topic: str, offset: int) -> str:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            metadata = consumer.consumer_group_metadata()
            offsets = [TopicPartition(topic, 0, offset)]
            return self._try(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, LIMIT_S))
        finally:
            consumer.close()

    def commit(self) -> str:
        return self._end(self._producer.commit_transaction)

    def abort(self) -> str:
        return self._end(self._producer.abort_transaction)

    def _end(self, how: Callable[[float], object]) -> str:
        outcome = self._try(lambda: how(LIMIT_S))
        self._failed.clear()  # what was still to be sent when it was aborted
        return outcome

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def _try(self, action: Callable[[], object]) -> str:
        from confluent_kafka import KafkaException

        try:
            action()
        except KafkaException as error:
            return str(error.args[0].name())
        return "ok"


class AiokafkaTransactions:
    """aiokafka, which speaks the first version of each request."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._sent: list[Any] = []
        self._settings = {"bootstrap_servers": bootstrap, "transactional_id": transactional_id, "request_timeout_ms": 10_000}
        self._producer: Any = None

    def init(self) -> str:
        from aiokafka import AIOKafkaProducer

        async def start() -> None:
            self._producer = AIOKafkaProducer(**self._settings)
            await self._producer.start()

        return self._try(start())

    def begin(self) -> str:
        return self._try(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> str:
        async def send() -> None:
            self._sent.append(await self._producer.send(topic, value.encode(), partition=partition))

        return self._try(send())

    def flush(self) -> str:
        async def flush() -> None:
            sent, self._sent = self._sent, []
            await asyncio.wait_for(asyncio.gather(*sent), LIMIT_S)

        return self._try(flush())

    def offset(self, group: str, topic: str, offset: int) -> str:
        from aiokafka import TopicPartition

        return self._try(self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def commit(self) -> str:
        self._sent.clear()
        return self._try(asyncio.wait_for(self._producer.commit_transaction(), LIMIT_S))

    def abort(self) -> str:
        self._sent.clear()
        return self._try(asyncio.wait_for(self._producer.abort_transaction(), LIMIT_S))

    def close(self) -> None:
        if self._producer is not None:
            self._try(asyncio.wait_for(self._producer.stop(), LIMIT_S))
        self._loop.close()

    def _try(self, action: Coroutine[Any, Any, object]) -> str:
        from aiokafka.errors import KafkaError

        try:
            self._loop.run_until_complete(action)
        except (KafkaError, TimeoutError) as error:
            return type(error).__name__
        return "ok"


class JavaTransactions:
    """The Java client: with Kafka 4 the protocol of ``transaction.version`` 2."""

    def __init__(self, bootstrap: str, transactional_id: str, libraries: Path, source: Path) -> None:
        java = java_command(libraries, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", str(source), bootstrap, transactional_id)
        self._process = subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def init(self) -> str:
        return self._say("init")

    def begin(self) -> str:
        return self._say("begin")

    def send(self, topic: str, partition: int, value: str) -> str:
        return self._say(f"send {topic} {partition} {value}")

    def flush(self) -> str:
        return self._say("flush")

    def offset(self, group: str, topic: str, offset: int) -> str:
        return self._say(f"offset {group} {topic} {offset}")

    def commit(self) -> str:
        return self._say("commit")

    def abort(self) -> str:
        return self._say("abort")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()
