"""The three hosts together: started side by side, followed while they publish, and what they have done in the end.

What a host sends is decided from the log: a line that the topic holds is not sent again, whichever run put it there. So it does not matter
in which order the lines arrived, nor how far each partition had come when a run was killed.
"""

import base64
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.demo.children import Child, host
from moldau.demo.host import LINE_HEADER, HostResult, Orders
from moldau.demo.inputs import LINE_FIELD
from moldau.lake.avro.columns import AvroColumns
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.columns import RecordColumns
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.tasks import RangeRead, ReadRules
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition


class ForeignRecordError(RuntimeError):
    """The topic holds something that the demonstration has not published; the message names partition and offset."""


def lines_there(bootstrap: str, registry: str, topic: str, reader_schema: str) -> Any:
    """The numbers of the lines, rising, each once (numpy, int64); `reader_schema` is that of the events.

    The client's errors, RegistryError, ForeignRecordError.
    """
    found: list[Any] = []
    columns = AvroColumns(registry, reader_schema=reader_schema, columns=[LINE_FIELD])
    rules = ReadRules(wanted=("value", "headers"))
    try:
        with ClusterLog(bootstrap, "moldau-demo") as log:
            for number in range(log.partition_counts([topic])[topic]):
                partition = TopicPartition(topic, number)
                first, end = log.bounds(partition)
                found += [_lines(columns, part, partition) for part in RangeRead(log, OffsetRange(topic, number, first, end), rules)]
    finally:
        columns.close()
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _lines(columns: AvroColumns, records: RecordColumns, partition: TopicPartition) -> Any:
    decoded = columns.decode(records.value)
    lines = decoded.batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64)
    assert records.headers is not None
    others = []
    for row, reason in decoded.rejected.items():
        line = _line_header(records.headers[row].as_py())
        if line is None:
            raise ForeignRecordError(
                f"{partition}: the record at offset {records.offset[row]} was not published by the demonstration: {reason}"
            )
        others.append(line)
    return np.concatenate([lines, np.array(others, np.int64)])


def _line_header(headers: Any) -> int | None:
    for header in headers or []:
        if header["key"] == LINE_HEADER and header["value"].isdigit():
            return int(header["value"])
    return None


_BAD_SHOWN = 10
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Events of 2013 are older than any retention, and the counts of them are to be there when the demonstration is run again."""


class PublishError(RuntimeError):
    """Events could not be published; what was acknowledged stays, and the next run continues after it."""


def ensure_topics(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the topic of the events and that of the audit unless they exist. The client's errors; PublishError."""
    from moldau.tracking.audit_record import AUDIT_PARTITIONS, AUDIT_TOPIC

    with Cluster(bootstrap, client_id="moldau-demo") as cluster:
        for name, count in ((topic, partitions), (AUDIT_TOPIC, AUDIT_PARTITIONS)):
            there = cluster.metadata([name]).topics.get(name)
            if there is None or there.error:
                _create(cluster, name, count)
            elif len(there.partitions) != count:
                raise PublishError(f"topic {name} has {len(there.partitions)} partitions, not {count}; use another --dir")


def _create(cluster: Cluster, name: str, count: int) -> None:
    try:
        Admin(cluster).create_topic(name, count, configs=FOR_EVER)
    except RequestFailedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # by a request before, whose controller resigned after it
            raise


def as_bits(lines: Any) -> str:
    """Numbers of lines as a bit for each, in base64."""
    if not len(lines):
        return ""
    there = np.zeros(int(lines[-1]) + 1, np.uint8)
    there[lines] = 1
    return base64.b64encode(np.packbits(there, bitorder="little").tobytes()).decode()


@dataclass(frozen=True, slots=True)
class PublishTotals:
    """What all hosts have dealt with, and how much of it was sent now."""

    hosts: tuple[HostResult, ...]
    bad_shown: tuple[tuple[int, str], ...]

    @property
    def read(self) -> int:
        """Lines of the input, the planted loss among them."""
        return sum(each.read for each in self.hosts)

    @property
    def bad(self) -> int:
        """Lines that are no events."""
        return sum(each.bad for each in self.hosts)

    @property
    def sent(self) -> int:
        """Lines sent in this run."""
        return sum(each.sent for each in self.hosts)

    @property
    def sent_bytes(self) -> int:
        """Their bytes."""
        return sum(each.sent_bytes for each in self.hosts)

    def __add__(self, other: "PublishTotals") -> "PublishTotals":
        return PublishTotals(self.hosts + other.hosts, (*self.bad_shown, *other.bad_shown)[:_BAD_SHOWN])

    @property
    def planted_lines(self) -> tuple[int, ...]:
        """The line that was counted and never sent, if one was."""
        return tuple(each.planted_line for each in self.hosts if each.planted_line is not None)


class HostPublishers:
    """The hosts at work. `progress` is called with the number of a host and how many events it has sent, from threads of this class."""

    def __init__(self, orders: Sequence[Orders], logs: Path, progress: Callable[[int, int], object]) -> None:
        self._progress = progress
        self.ended = 0.0
        """When the last one so far ended, on the monotonic clock."""
        self._children = [host(each.to_bytes(), logs / f"host-{each.host + 1}.log") for each in orders]
        self._done: list[HostResult | None] = [None] * len(orders)
        self._threads = [
            threading.Thread(target=self._follow, args=(number, child), name=f"moldau demo host {number}", daemon=True)
            for number, child in enumerate(self._children)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def over(self) -> bool:
        """Whether all hosts have ended, well or not."""
        return not any(thread.is_alive() for thread in self._threads)

    def result(self) -> PublishTotals:
        """Wait for all of them. PublishError with the output of a host that has failed."""
        for thread in self._threads:
            thread.join()
        hosts = []
        for child, done in zip(self._children, self._done, strict=True):
            if done is None:
                raise PublishError(f"a host has failed; {child.log} ends with: {child.output()}")
            hosts.append(done)
        shown = sorted((int(line), str(reason)) for done in hosts for line, reason in done.bad_shown)
        return PublishTotals(tuple(hosts), tuple(shown[:_BAD_SHOWN]))

    def stop(self) -> None:
        """End those that are still at work."""
        for child in self._children:
            child.kill()

    def _follow(self, number: int, child: Child) -> None:
        assert child.process.stdout is not None
        for line in child.process.stdout:
            message = json.loads(line)
            if "result" in message:
                self._done[number] = done = HostResult(**message["result"])
                self._progress(number, done.sent)
            else:
                self._progress(number, message["sent"])
        child.process.wait()
        self.ended = max(self.ended, time.monotonic())
