"""Events to the topic, each once, however often this is started anew.

Lines go out in the order of the input, and what goes to one partition arrives in that order without gaps: the producer is idempotent and
waits for all acknowledgements. So the last record of a partition tells how far the partition is done: every line up to its ``line``
that belongs there is there. A run that was killed with batches on their way, some of which landed, is resumed from that, partition by
partition; the partitions need not have come equally far.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake.checksum import MODULUS, Tally, event_hash, line_of
from moldau.lake.cluster_log import ClusterLog
from moldau.lake.demo.inputs import BadLine, Event
from moldau.lake.demo.partitioning import Partitioner
from moldau.lake.offsets import EARLIEST, LATEST, OffsetRange
from moldau.lake.reading import RangeRead, ReadRules
from moldau.model.identity import TopicPartition

LINE_HEADER = "line"
REJECT_HEADER = "moldau.bad"
"""Says why a record is no event."""
_FLUSH_TIMEOUT_S = 60.0
_PROGRESS_EVERY = 2_000
_BAD_LINES_SHOWN = 10


class PublishError(RuntimeError):
    """Events could not be published; what was acknowledged stays, and the next run goes on behind it."""


@dataclass(slots=True)
class Published:
    """What went through: everything that was read, and how much of it was sent now."""

    read: int = 0
    sent: int = 0
    sent_bytes: int = 0
    bad: int = 0
    bad_shown: list[BadLine] = field(default_factory=list)
    """The first few bad lines."""
    good_checksum: int = 0
    bad_checksum: int = 0

    @property
    def good(self) -> Tally:
        """What the table has to hold."""
        return Tally(self.read - self.bad, self.read - self.bad, self.good_checksum)

    @property
    def rejected(self) -> Tally:
        """What the dead-letter table has to hold."""
        return Tally(self.bad, self.bad, self.bad_checksum)

    @property
    def all(self) -> Tally:
        """What the topic has to hold."""
        return Tally(self.read, self.read, (self.good_checksum + self.bad_checksum) % MODULUS)


def ensure_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the topic unless it is there, to keep for ever: its records are older than any retention. The client's errors."""
    with Cluster(bootstrap, client_id="moldau-demo") as cluster:
        there = cluster.metadata([topic]).topics.get(topic)
        if there is None or there.error:
            Admin(cluster).create_topic(topic, partitions, configs={"retention.ms": "-1", "retention.bytes": "-1"})
            return
        count = len(there.partitions)
    if count != partitions:
        raise PublishError(f"topic {topic} has {count} partitions, not {partitions}; use another --dir")


def lines_done(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """For each partition the number of the last line in it, 0 where it is empty."""
    numbers = []
    with ClusterLog(bootstrap, "moldau-demo") as log:
        all_partitions = [TopicPartition(topic, number) for number in range(partitions)]
        firsts = log.offsets(dict.fromkeys(all_partitions, EARLIEST))
        lasts = log.offsets(dict.fromkeys(all_partitions, LATEST))
        for partition in all_partitions:
            last = lasts[partition]
            if firsts[partition] == last:
                numbers.append(0)
                continue
            (tail,) = RangeRead(log, OffsetRange(topic, partition.partition, last - 1, last), ReadRules(wanted={"headers"}))
            line = line_of(tail.headers[0].as_py()) if tail.headers is not None else None
            if line is None:
                raise PublishError(f"{partition}: the record at offset {last - 1} has no header {LINE_HEADER!r}; it is not ours")
            numbers.append(line)
    return numbers


def publish(
    bootstrap: str,
    topic: str,
    partitions: int,
    lines: Iterable[Event | BadLine],
    *,
    compression: str = "zstd",
    progress: Callable[[int], object] = lambda _: None,
) -> Published:
    """Send every line that is not in the topic yet, the bad ones as they are; what all lines add up to. PublishError."""
    sender = _Sender(bootstrap, topic, compression)
    done = lines_done(bootstrap, topic, partitions)
    partitioner = Partitioner(partitions)
    result = Published()
    for item in lines:
        if isinstance(item, BadLine):
            event = Event(item.line, None, None, item.raw)
            result.bad += 1
            result.bad_checksum = (result.bad_checksum + event_hash(item.line, item.raw)) % MODULUS
            if len(result.bad_shown) < _BAD_LINES_SHOWN:
                result.bad_shown.append(item)
        else:
            event = item
            result.good_checksum = (result.good_checksum + event_hash(event.line, event.payload)) % MODULUS
        result.read += 1
        partition = partitioner.partition(event.key, event.line)
        if event.line > done[partition]:
            sender.send(event, partition, item.reason if isinstance(item, BadLine) else None)
            result.sent += 1
            result.sent_bytes += len(event.payload)
        if result.read % _PROGRESS_EVERY == 0:
            progress(result.read)
    sender.finish()
    progress(result.read)
    return result


class _Sender:
    """An idempotent producer that stops at the first error: after it, order without gaps could not be promised."""

    def __init__(self, bootstrap: str, topic: str, compression: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._error: str | None = None
        self._since_poll = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,  # no later event lands where an earlier one was given up
                "acks": "all",
                "linger.ms": 20,
                "compression.type": compression,
                "delivery.report.only.error": True,
                "log_level": 3,
            }
        )

    def send(self, event: Event, partition: int, fault: str | None) -> None:
        """Hand over one event, or a line with a fault; waits while the queue is full."""
        settings: dict[str, Any] = {} if event.time_ms is None else {"timestamp": max(1, event.time_ms)}  # 0 is now to librdkafka
        headers: list[tuple[str, str | bytes | None]] = [(LINE_HEADER, str(event.line))]
        if fault is not None:
            headers.append((REJECT_HEADER, f"line {event.line}: {fault}".encode("utf-8", "replace")))
        deadline = time.monotonic() + _FLUSH_TIMEOUT_S
        while True:
            try:
                self._producer.produce(
                    self._topic, event.payload, event.key, partition, on_delivery=self._delivered, headers=headers, **settings
                )
            except BufferError:
                self._poll(0.1)
                if time.monotonic() > deadline:
                    raise PublishError(f"{self._topic}-{partition}: line {event.line} waits for the broker since a minute") from None
            else:
                break
        self._since_poll += 1
        if self._since_poll >= 1_000:
            self._poll(0)

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        self._raise_error()
        if left:
            raise PublishError(f"{self._topic}: {left} events are not acknowledged after {_FLUSH_TIMEOUT_S:.0f} s")

    def _poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)
        self._since_poll = 0
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            self._producer.purge()
            raise PublishError(self._error)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = f"{message.topic()}-{message.partition()}: line {line_header(message)}: {error.str()}"


def line_header(message: Any) -> str:
    """The line of a message, for people."""
    return str(dict(message.headers() or []).get(LINE_HEADER, b"?"), "ascii", "replace")
