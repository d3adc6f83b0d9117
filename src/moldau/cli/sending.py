"""The producer of ``moldau produce``: confluent-kafka with bounded memory and an account of what failed.

librdkafka retries what may pass (a broker that does not answer, a full disk, too few replicas in sync) until a delivery's time is over, and
does not report the brokers' answers meanwhile. So they are asked whether enough replicas are in sync. Of connections it does report:
`moldau.client.librdkafka` makes one line of each outage, and the last of these is given as the reason otherwise.

Looked at only where the producer waits anyway, for room in its queue or for the end.

Brokers take or refuse a batch; a small record that shared one with a large one is refused with it. So each line has its own size,
and the limit is printed once.

librdkafka queues up to `QUEUE_RECORDS_MAX` records or `QUEUE_KIB_MAX`; when it is full we wait for deliveries instead of reading on.
Only failures are reported back (`delivery.report.only.error`), which saves a Python call for every record that went well; what was
accepted, less what failed and what was left at the end, was delivered. With a transactional id all of it is one transaction, which
is committed at the end, or aborted. Which line a record came from is kept for those of `LARGE_BYTES` and more, of which it may be asked.
"""

import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from moldau.cli.output import counted, say
from moldau.client.failures import LIMITS, size_of
from moldau.client.librdkafka import RETRIED, BrokerLog
from moldau.model.errors import ErrorCode, MoldauError
from moldau.model.min_insync import effective_minimum

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from moldau.cli.input_records import InputRecord
    from moldau.client.admin import ConfigEntry
    from moldau.client.cluster import Cluster
    from moldau.client.transactions import Transaction

REPORT_AFTER_S = 4.0
REPORT_AGAIN_S = 30.0
UNKNOWN_REASON = "the brokers answer with an error that may pass (a full disk, too few replicas in sync), or not at all: see their logs"


class AcknowledgementWait:
    """One stretch without acknowledgements after the other. `where` is what is sent to; a delivery may take `timeout_s`."""

    def __init__(
        self,
        where: str,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        ask: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`ask` asks the brokers why they acknowledge nothing."""
        self._where = where
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._ask = ask
        self._heard = _LastWarning()
        lines = logging.Logger("moldau produce")
        lines.addHandler(self._heard)
        self.logger = BrokerLog("producer", monotonic, lines)
        """For librdkafka."""
        self._acknowledged = -1
        self._since = 0.0
        self._reported_at: float | None = None

    def look(self, acknowledged: int, waiting: int) -> str | None:
        """What is to be reported now, if anything: so many records are acknowledged so far, and so many wait to be.

        librdkafka counts its log lines among what waits, so a count may be too low for a moment.
        """
        now = self._monotonic()
        acknowledged = max(acknowledged, 0)
        if acknowledged > self._acknowledged:
            reported, lasted_s = self._reported_at is not None, now - self._since
            self._acknowledged, self._since, self._reported_at = acknowledged, now, None
            self.logger.answered()
            if not self.logger.any_away:  # else these came before the outage, whose reason is not reported again
                self._heard.reason = ""
            return f"{self._where}: acknowledged again after {lasted_s:.0f} s, sending continues" if reported else None
        due = self._since + REPORT_AFTER_S if self._reported_at is None else self._reported_at + REPORT_AGAIN_S
        if not waiting or now < due:
            return None
        self._reported_at = now
        records = f"{counted(waiting, 'record')} wait{'s' if waiting == 1 else ''}"
        limit = f"each is tried again for up to {self._timeout_s:g} s (--timeout)"
        return f"{self._where}: nothing acknowledged for {now - self._since:.0f} s, {records}; {limit}; {self.reason or UNKNOWN_REASON}"

    @property
    def reason(self) -> str:
        """Why nothing is acknowledged; empty where that is not known."""
        return self._ask() or self._heard.reason


class _LastWarning(logging.Handler):
    """Keeps the last warning as the reason, until there is progress."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        """A line of librdkafka's."""
        self.reason = record.getMessage().removeprefix("producer: ").removesuffix(RETRIED)


LINES_TOLD = 10
LARGE_BYTES = 4096
"""Of key and value: the line of a record of fewer is not remembered."""
MINIMUM = "min.insync.replicas"
ASK_WHY_S = 1.0
"""How long the brokers are asked why they acknowledge nothing: they may be away, and the producer waits meanwhile."""
ASK_S = 5.0
"""How long the brokers are asked for the limit; without their answer it is printed without its number."""


def topic_limit(cluster: "Cluster", topic: str, name: str) -> "ConfigEntry | None":
    """What holds for a topic by this setting; None if the brokers do not answer."""
    from moldau.client.admin import Admin, AdminResource, AdminResourceType

    try:
        entries = Admin(cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, topic))
    except MoldauError:
        return None
    return next((entry for entry in entries if entry.name == name and entry.value is not None), None)


def lack_of_replicas(bootstrap: str, topic: str, partition: int) -> str | None:
    """Why brokers refuse what is sent to the partition, or to any, with acks=all: if too few replicas are in sync now."""
    from moldau.client.cluster import Cluster

    try:
        with Cluster(bootstrap, client_id="moldau-cli", timeout_s=ASK_WHY_S) as cluster:
            partitions = cluster.topic(topic).partitions
            found = topic_limit(cluster, topic, MINIMUM)
    except MoldauError:
        return None
    minimum = 1 if found is None else int(found.value or 1)
    for each in partitions:
        if partition in (ANY_PARTITION, each.partition) and len(each.isr) < effective_minimum(minimum, each.replicas):
            lack = f"{len(each.isr)} of {len(each.replicas)} replicas in sync, {MINIMUM} is {minimum}"
            return f"NOT_ENOUGH_REPLICAS: {topic}-{each.partition} has {lack}; see moldau topic describe {topic}"
    return None


class LargeRecords:
    """Collects them for one topic, in the order in which they came back."""

    def __init__(self, bootstrap: str, topic: str, producer_bytes_max: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer_bytes_max = producer_bytes_max
        self._lines: list[tuple[int, int]] = []
        """Sizes and lines of the largest, as a heap."""
        self._more = 0
        self._not_kept = 0
        self._largest = 0
        self._codes: set[ErrorCode] = set()
        self._by_producer = False

    def by_producer(self, line: int, size: int) -> None:
        """The producer itself has refused the record on this line, with so many bytes of key and value."""
        self._by_producer = True
        self._note(line, size)

    def by_broker(self, code: int, line: int | None, size: int) -> None:
        """A broker has refused the record's batch. `line` is None where it was not kept."""
        self._codes.add(ErrorCode(code))
        self._largest = max(self._largest, size)
        if line is None:
            self._not_kept += 1
        else:
            self._note(line, size)

    def _note(self, line: int, size: int) -> None:
        if len(self._lines) < LINES_TOLD:
            heapq.heappush(self._lines, (size, line))
        else:
            heapq.heappushpop(self._lines, (size, line))
            self._more += 1

    def lines(self, file: str) -> Iterator[str]:
        """The lines, then the limits. Nothing if no record was too large."""
        for line, size in sorted((line, size) for size, line in self._lines):
            yield f"{file}:{line}: not delivered to topic {self._topic}: key and value have {size:,} bytes"
        if self._more:
            yield f"and {counted(self._more, 'more line')}, with no more bytes"
        if self._not_kept:
            yield f"and {counted(self._not_kept, 'record')} of under {LARGE_BYTES:,} bytes, whose lines are not remembered"
        if self._by_producer:
            limit = f"{self._producer_bytes_max:,} bytes with headers and framing: message.max.bytes of this producer"
            yield f"topic {self._topic}: a record may have {limit}; send less in one record"
        for code in sorted(self._codes):
            name, of_brokers = LIMITS[code]
            allowed = self._allowed(name, of_brokers)
            helps = f"raise {name} (moldau topic alter {self._topic} --config {name}=BYTES), or send less in one record"
            largest = f"the largest record of those refused has {self._largest:,} bytes of key and value"
            yield f"topic {self._topic}: a batch of records may have {allowed}; {largest}; {helps}"

    def _allowed(self, name: str, of_brokers: str) -> str:
        from moldau.model.config.definition import ConfigSource

        found = self._ask(name)
        if found is None:
            return f"no more than {name} of the topic allows"
        whose = f"{name} of the topic" if found.source is ConfigSource.DYNAMIC_TOPIC else f"{of_brokers} of the brokers"
        return f"{int(found.value or 0):,} bytes: {whose}"

    def _ask(self, name: str) -> "ConfigEntry | None":
        from moldau.client.cluster import Cluster

        try:
            with Cluster(self._bootstrap, client_id="moldau-cli", timeout_s=ASK_S) as cluster:
                return topic_limit(cluster, self._topic, name)
        except MoldauError:
            return None


QUEUE_RECORDS_MAX = 200_000
QUEUE_KIB_MAX = 128 * 1024
LINGER_MS = 20
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
POLL_EVERY = 1024
"""Records between looks for failures."""
FAILURES_TOLD = 10
TIMED_OUT = "MSG_TIMED_OUT"
ANY_PARTITION = -1
FLUSH_SLICE_S = 0.2
"""Ctrl-C is not heard while librdkafka waits, so it waits in slices."""

TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default: a file takes as long as it takes."""


class Sender:
    """Sends records to one topic. `accepted` were handed to librdkafka, `failed` of them came back."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        settings: Mapping[str, str | int | bool],
        *,
        headers: Mapping[str, str],
        partition: int | None,
        timeout_s: float,
        transactional_id: str | None = None,
    ) -> None:
        from confluent_kafka import Producer

        self.accepted = 0
        self.failed = 0
        self.too_large = LargeRecords(bootstrap, topic, MESSAGE_BYTES_MAX)
        self.report: Callable[[str], object] = partial(say, err=True)
        """What is called with a line about brokers that acknowledge nothing."""
        self._failures: Counter[tuple[int, str]] = Counter()
        self._topic = topic
        self._timeout_s = timeout_s
        self._partition = ANY_PARTITION if partition is None else partition
        where = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
        ask = partial(lack_of_replicas, bootstrap, topic, self._partition) if settings.get("acks") == "all" else lambda: None
        self._waiting = AcknowledgementWait(where, timeout_s, ask=ask)
        self._headers: list[tuple[str, str | bytes | None]] = [(name, value.encode()) for name, value in headers.items()]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "moldau-cli",
                "partitioner": "murmur2_random",
                "linger.ms": LINGER_MS,
                "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
                "queue.buffering.max.kbytes": QUEUE_KIB_MAX,
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "message.timeout.ms": int(timeout_s * 1000),
                "delivery.report.only.error": True,
                "log_level": 4,
                "logger": self._waiting.logger,
                "on_delivery": self._on_delivery,
                **settings,
                **_transactional(transactional_id),
            }
        )
        self.transactional = transactional_id is not None
        self._transaction: Transaction | None = None
        if transactional_id is not None:
            self._begin(transactional_id, bootstrap)

    def _begin(self, transactional_id: str, bootstrap: str) -> None:
        from moldau.client.delivery import DeliveryThread
        from moldau.client.transactions import Transaction, TransactionalId

        reports = DeliveryThread(self._producer, "unused")  # we take them ourselves
        owner = TransactionalId(self._producer, reports, transactional_id, TRANSACTION_TIMEOUT_MS, bootstrap)
        owner.take_over(self._timeout_s)
        self._transaction = Transaction(owner, self._producer, reports, ())
        self._transaction.begin()

    def send(self, record: "InputRecord") -> None:
        """Queue one record, waiting for room where there is none. A record that librdkafka refuses counts as failed."""
        from confluent_kafka import KafkaError, KafkaException

        small = len(record.value) + len(record.key or b"") < LARGE_BYTES
        report = None if small else partial(self._on_delivery, line=record.line)
        while True:
            try:
                self._producer.produce(self._topic, record.value, record.key, self._partition, on_delivery=report, headers=self._headers)
                break
            except BufferError:
                self._producer.poll(0.1)
                self._look(len(self._producer))
            except KafkaException as error:
                cause = error.args[0]
                assert isinstance(cause, KafkaError)
                self._count(self._partition, cause)
                if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    self.too_large.by_producer(record.line, size_of(record.value, record.key))
                break
        self.accepted += 1
        if not self.accepted % POLL_EVERY:
            self._producer.poll(0)

    def give_up(self) -> None:
        """Wait no longer for what is not acknowledged: whether it arrives is not known, and it counts as failed."""
        left = len(self._producer)
        self.failed += left
        self._failures[ANY_PARTITION, "not waited for"] += left

    def finish(self) -> None:
        """Wait for all deliveries; each has its time limit, so this ends. KeyboardInterrupt may end it before."""
        deadline = time.monotonic() + self._timeout_s + 5
        left = 1
        while left and time.monotonic() < deadline:
            left = self._producer.flush(FLUSH_SLICE_S)
            self._look(left)
        if left:
            self.failed += left
            self._failures[ANY_PARTITION, "no answer in time"] += left

    def _look(self, left: int) -> None:
        text = self._waiting.look(self.delivered - left, left)
        if text is not None:
            self.report(text)

    def end_transaction(self, *, commit: bool) -> None:
        """Commit what was sent, or undo it, if it was sent in a transaction. ClientError has why that cannot be done."""
        if self._transaction is not None:
            if commit:
                self._transaction.commit()
            else:
                self._transaction.abort()

    @property
    def delivered(self) -> int:
        """Records that the broker has (with acks 0: that were sent)."""
        return self.accepted - self.failed

    def failures(self) -> Iterator[str]:
        """A line for each kind of failure, the most frequent first; where the time was over, with why nothing is acknowledged now."""
        cause = self._waiting.reason if any(reason.startswith(TIMED_OUT) for _, reason in self._failures) else ""
        for (partition, reason), count in self._failures.most_common(FAILURES_TOLD):
            where = self._topic if partition == ANY_PARTITION else f"{self._topic}-{partition}"
            because = f"; {cause}" if cause and reason.startswith(TIMED_OUT) else ""
            yield f"{where}: {count:,} not delivered: {reason}{because}"
        if len(self._failures) > FAILURES_TOLD:
            yield f"and {len(self._failures) - FAILURES_TOLD} other kinds of failure"

    def _on_delivery(self, error: "KafkaError | None", message: "Message", line: int | None = None) -> None:
        if error is not None:
            partition = message.partition()
            self._count(ANY_PARTITION if partition is None else partition, error)
            if error.code() in LIMITS:
                self.too_large.by_broker(error.code(), line, size_of(message.value(), message.key()))

    def _count(self, partition: int, error: "KafkaError") -> None:
        self.failed += 1
        self._failures[partition, f"{error.name().strip('_')}: {error.str()}"] += 1


def _transactional(name: str | None) -> dict[str, str | int]:
    return {} if name is None else {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
