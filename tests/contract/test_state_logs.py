"""What coordinators rely on when they keep their state in an internal topic; the list that stands for it in tests has to keep it too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from moldau.broker.coordinators.state_log import KeyValue, LoadedBatch, StateLog, TransactionalProducer
from moldau.broker.replicas.append_batch import MarkerBatch
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld
from support.state_logs import ListStateLog

PARTITIONS = 4


class Subject(Protocol):
    """A state log, and what only a test does to it."""

    clock: FakeClock

    @property
    def log(self) -> StateLog:
        """What is tested."""

    def mark(self, partition: int, producer: TransactionalProducer, *, committed: bool) -> None:
        """Write the end of a transaction, as its coordinator does."""

    def close(self, partition: int) -> None:
        """Let the partition be led elsewhere."""


@dataclass
class Fake:
    log: ListStateLog
    clock: FakeClock

    def mark(self, partition: int, producer: TransactionalProducer, *, committed: bool) -> None:
        self.log.mark(partition, producer, committed=committed)

    def close(self, partition: int) -> None:
        self.log.closed.add(partition)


class Real:
    def __init__(self, **settings: Any) -> None:
        self.world = BrokerWorld(offsets_topic_num_partitions=PARTITIONS, **settings)
        self.clock = self.world.clock
        self.log = self.world.broker.coordinators.offsets_topic
        self.world.finish(self.log.ensured())

    def mark(self, partition: int, producer: TransactionalProducer, *, committed: bool) -> None:
        marker = EndTxnMarker(ControlType.COMMIT if committed else ControlType.ABORT, 0)
        led = self.world.partition("__consumer_offsets", partition)
        self.world.append(MarkerBatch(led, *producer, marker, 1))

    def close(self, partition: int) -> None:
        self.world.broker.replicas.directory_offline("/data", [self.world.partition("__consumer_offsets", partition).topic_partition])


@pytest.fixture(params=["list", "topic", "compressed topic", "synced topic"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    match request.param:
        case "list":
            clock = FakeClock()
            yield Fake(ListStateLog(PARTITIONS, clock=clock), clock)
        case "topic":
            yield Real()
        case "compressed topic":
            yield Real(offsets_topic_compression_codec=4)
        case _:
            yield Real(log_flush_interval_messages=1)


def append(
    subject: Subject, partition: int, records: Sequence[KeyValue], producer: TransactionalProducer | None = None
) -> PeerError | None:
    """Append, and how it ended."""
    outcomes: list[PeerError | None] = []
    subject.log.append(partition, records, outcomes.append, producer)
    subject.clock.settle()
    (outcome,) = outcomes
    return outcome


def load(subject: Subject, partition: int) -> list[LoadedBatch]:
    """All that is read back."""
    batches: list[LoadedBatch] = []
    outcomes: list[PeerError | None] = []
    subject.log.load(partition, batches.append, outcomes.append)
    subject.clock.settle()
    assert outcomes == [None]
    return batches


def contents(batches: list[LoadedBatch]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for batch in batches for record in batch.records]


def test_what_is_appended_is_read_back_in_order_with_tombstones_and_offsets(subject: Subject) -> None:
    assert append(subject, 1, [(b"a", b"1"), (b"b", b"2")]) is None
    assert append(subject, 1, [(b"a", None)]) is None
    assert append(subject, 2, [(b"", b"")]) is None
    batches = load(subject, 1)
    assert contents(batches) == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", None)]
    assert [(batch.base_offset, batch.producer_id, batch.marker) for batch in batches] == [(0, -1, None), (2, -1, None)]
    assert {record.timestamp for batch in batches for record in batch.records} == {subject.clock.time_ms()}
    assert contents(load(subject, 2)) == [(0, b"", b"")]
    assert load(subject, 3) == []


def test_a_transaction_is_read_back_with_its_producer_and_its_marker(subject: Subject) -> None:
    first, second = TransactionalProducer(7, 2), TransactionalProducer(8, 0)
    assert append(subject, 0, [(b"a", b"1")], first) is None
    assert append(subject, 0, [(b"b", b"2")], second) is None
    assert append(subject, 0, [(b"c", b"3")]) is None
    assert append(subject, 0, [(b"d", b"4")], first) is None
    subject.mark(0, first, committed=True)
    subject.mark(0, second, committed=False)
    told = [(batch.producer_id, batch.producer_epoch, batch.marker and batch.marker.type, len(batch.records)) for batch in load(subject, 0)]
    assert told == [
        (7, 2, None, 1),
        (8, 0, None, 1),
        (-1, -1, None, 1),
        (7, 2, None, 1),
        (7, 2, ControlType.COMMIT, 0),
        (8, 0, ControlType.ABORT, 0),
    ]


def test_an_append_returns_the_offset_of_its_first_record_and_none_when_it_is_refused(subject: Subject) -> None:
    assert [subject.log.append(1, [(b"k", b"v")] * count, lambda _: None) for count in (2, 3, 1)] == [0, 2, 5]
    subject.mark(1, TransactionalProducer(7, 2), committed=True)
    assert subject.log.append(1, [(b"k", b"v")], lambda _: None) == 7
    subject.close(1)
    outcomes: list[PeerError | None] = []
    assert subject.log.append(1, [(b"k", b"v")], outcomes.append) is None
    assert [error is None for error in outcomes] == [False]


def test_what_is_appended_while_it_is_read_is_not_read(subject: Subject) -> None:
    assert append(subject, 0, [(b"a", b"1")]) is None
    batches: list[LoadedBatch] = []
    ends: list[PeerError | None] = []
    subject.log.load(0, batches.append, ends.append)
    subject.log.append(0, [(b"a", b"2")], lambda _: None)
    subject.clock.settle()
    assert ends == [None]
    assert contents(batches)[0] == (0, b"a", b"1")
    assert len(contents(batches)) <= 2


def test_a_partition_that_is_led_elsewhere_takes_nothing(subject: Subject) -> None:
    subject.close(2)
    error = append(subject, 2, [(b"a", b"1")])
    assert error is not None
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert append(subject, 3, [(b"a", b"1")]) is None


@pytest.mark.parametrize(
    ("key", "partition"),
    [("", 0), ("a", 97), ("group", 98_629_247), ("console-consumer-1", 35_782_224), ("é😀", 1_996_812), ("polygenelubricants", 0)],
)
def test_a_key_belongs_to_the_partition_that_java_gives_it(subject: Subject, key: str, partition: int) -> None:
    assert subject.log.partitions == PARTITIONS
    assert subject.log.partition_for(key) == partition % PARTITIONS
