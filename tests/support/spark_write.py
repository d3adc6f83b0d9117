"""The sink called as Spark calls it, without Spark: a writer made and pickled by the driver, tasks that write, a commit elsewhere.

As a program it runs batches in processes of their own, which may die: each line of its input is a batch as JSON, each line of its output
says how the process ended.
"""

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

from moldau.lake.writing.points import DIE_AT
from moldau.lake.writing.sink import MoldauStreamWriter, WriteMessage, stream_writer

SCHEMA = StructType().add("value", BinaryType())
RUN = "0c4e1a9e-run"
TASKS, COUNT, PARTITIONS = 3, 20, 2
"""Of the batches that are written in processes of their own."""


def rows(values: Iterable[bytes]) -> Iterator[Any]:
    """Rows as a task gets them."""
    yield pa.record_batch([pa.array(list(values), pa.binary())], names=["value"])


class Query:
    """A stream under a name, whose batches are written by hand."""

    def __init__(self, bootstrap: str, topic: str, name: str, run: str = RUN, **options: str) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "queryname": name, "transactional": "true", **options}
        self.run = run

    def begin(self) -> MoldauStreamWriter:
        """The writer as tasks get it."""
        writer: MoldauStreamWriter = pickle.loads(pickle.dumps(stream_writer(self.options, SCHEMA)))
        return writer

    def task(self, writer: MoldauStreamWriter, batch: int, task: int, values: Iterable[bytes], attempt: int = 0) -> WriteMessage:
        """One attempt of a task."""
        return self.task_of(writer, batch, task, rows(values), attempt)

    def task_of(self, writer: MoldauStreamWriter, batch: int, task: int, batches: Iterator[Any], attempt: int = 0) -> WriteMessage:
        """One attempt of a task that gets these Arrow batches."""
        context: Any = TaskContext._getOrCreate()
        context._partitionId, context._attemptNumber = task, attempt
        context._localProperties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": self.run}
        try:
            message: WriteMessage = pickle.loads(pickle.dumps(writer.write(batches)))
        finally:
            TaskContext._setTaskContext(None)
        return message

    def commit(self, batch: int, messages: Sequence[WriteMessage]) -> None:
        """In a process that knows nothing but the messages."""
        stream_writer(self.options, SCHEMA).commit(messages, batch)

    def abort(self, batch: int, messages: Sequence[WriteMessage | None]) -> None:
        """Likewise."""
        stream_writer(self.options, SCHEMA).abort(messages, batch)

    def write(self, batch: int, tasks: Sequence[Iterable[bytes]]) -> None:
        """A batch from beginning to end."""
        writer = self.begin()
        self.commit(batch, [self.task(writer, batch, number, values) for number, values in enumerate(tasks)])


def values_of(batch: int, tasks: int, count: int) -> list[list[bytes]]:
    """Different values for each task of each batch."""
    return [[b"%d-%d-%d" % (batch, task, number) for number in range(count)] for task in range(tasks)]


def seen(bootstrap: str, topic: str, partitions: int, *, isolation_level: str = "read_committed") -> list[bytes]:
    """All values that librdkafka's consumer sees, sorted; of committed transactions only unless wanted otherwise."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation_level, "enable.partition.eof": True}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ends = [], 0
    try:
        while ends < partitions:
            message = consumer.poll(30)
            assert message is not None, "the consumer got nothing"
            if message.error():
                ends += 1
            else:
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return sorted(found)


def written(*batches: int) -> list[bytes]:
    """What is in the topic when these batches are."""
    return sorted(value for batch in batches for values in values_of(batch, TASKS, COUNT) for value in values)


class Processes:
    """Runs batches in processes of their own, all forked by one that has everything imported."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "support.spark_write"]
        tests = Path(__file__).resolve().parents[1]
        self._program = subprocess.Popen(command, cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def write(self, bootstrap: str, topic: str, batch: int, die_at: str | None = None) -> str:
        """Write a batch, by a query named as the topic, and say how it ended."""
        environment = {} if die_at is None else {DIE_AT: die_at}
        order = {"bootstrap": bootstrap, "topic": topic, "batch": batch, "environment": environment}
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(order) + "\n")
        self._program.stdin.flush()
        return self._program.stdout.readline().strip()

    def close(self) -> None:
        """End the program."""
        self._program.communicate()


def die_and_start_again(processes: Processes, bootstrap: str, topic: str, point: str) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Batch 0 is written, batch 1 dies at the point and is written again, then batch 2: what is seen after each of the last three."""
    assert processes.write(bootstrap, topic, 0) == "written"
    assert processes.write(bootstrap, topic, 1, point) == f"killed by {signal.SIGKILL.value}"
    then = seen(bootstrap, topic, PARTITIONS)
    assert processes.write(bootstrap, topic, 1) == "written"
    after = seen(bootstrap, topic, PARTITIONS)
    assert processes.write(bootstrap, topic, 2) == "written"
    return then, after, seen(bootstrap, topic, PARTITIONS)


def main() -> None:
    """Read lines, fork, say how it ended. What a batch needs is imported before the first fork."""
    for module in ("driver", "task"):
        importlib.import_module(f"moldau.lake.writing.{module}")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.update(order["environment"])
            try:
                query = Query(order["bootstrap"], order["topic"], order["topic"])
                query.write(order["batch"], values_of(order["batch"], TASKS, COUNT))
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", flush=True)
                os._exit(1)
            print("written", flush=True)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            print(f"killed by {-status}", flush=True)


if __name__ == "__main__":
    main()
