"""A transaction coordinator over a list, a clock that stands still, and partitions that only remember their markers.

world = TransactionWorld()
world.init("app")                          # -> Told(NONE, 1000, 0)
world.add("app", 1000, 0, "t-0")           # -> NONE
world.end("app", 1000, 0, committed=True)  # -> Told(NONE, 1000, 1)
world.markers                              # what was written, in order
world.crash(); world.init("app")           # another coordinator, over the same list
"""

from collections.abc import Sequence
from typing import NamedTuple

from moldau.broker.admission.state import StateBudgets
from moldau.broker.transactions.coordinator import TransactionCoordinator
from moldau.broker.transactions.events import AddPartitions, EndTransaction, InitProducer
from moldau.broker.transactions.markers import Marker, MarkerResults, MarkersDone
from moldau.broker.transactions.records import decode_value, encode_key
from moldau.broker.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    OLD_PROTOCOL,
    Partitions,
    TransactionMetadata,
    TransactionState,
    partitions_of,
)
from moldau.cluster.producer_ids import Done, ProducerIds
from moldau.model.config import BrokerConfig, read_static
from moldau.model.errors import CoordinationError, ErrorCode
from moldau.model.identity import ProducerId, TopicPartition
from moldau.testing.clock import FakeClock
from support.state_logs import ListStateLog

MINUTE_MS = 60_000
NOT_YET = ErrorCode.UNKNOWN_SERVER_ERROR
"""Stands for an answer that has not come."""


class Told(NamedTuple):
    """What a producer was answered."""

    code: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Written(NamedTuple):
    """A marker in a partition."""

    partition: str
    producer_id: int
    epoch: int
    committed: bool
    version: int = EPOCH_PER_TRANSACTION


def partitions(*names: str) -> Partitions:
    """Partitions by their names: ``t-0``."""
    return partitions_of(TopicPartition(topic, int(index)) for topic, _, index in (name.rpartition("-") for name in names))


class Asked:
    """A request that may be answered later; it is the token."""

    def __init__(self) -> None:
        self.told: Told | None = None

    def __call__(self, code: ErrorCode, producer_id: int, epoch: int) -> None:
        assert self.told is None, "answered twice"
        self.told = Told(code, producer_id, epoch)


class FakeProducerIds(ProducerIds):
    """Ids from 1000 on, while there are any."""

    def __init__(self) -> None:
        self.following = 1000
        self.exhausted = False

    def next(self) -> ProducerId:
        if self.exhausted:
            raise CoordinationError("none are left", retriable=True)
        self.following += 1
        return ProducerId(self.following - 1)

    def pass_over(self, used: int, done: Done | None = None) -> None:
        if not self.exhausted:
            self.following = max(self.following, used + 1)


class TransactionWorld:
    """See the module. Requests give the answer that came at once; `ask_...` give what may be answered later."""

    def __init__(self, *settings: str, state_partitions: int = 3) -> None:
        self.clock = FakeClock()
        self.log = ListStateLog(state_partitions)
        self.config = BrokerConfig(read_static(settings=settings))
        self.producer_ids = FakeProducerIds()
        self.markers: list[Written] = []
        self.coordinator_epochs: list[int] = []
        """Of each call to write markers."""
        self.epoch = 0
        self.refusals: dict[TopicPartition, ErrorCode] = {}
        """Partitions to which no marker can be written, and what they answer."""
        self.held: list[tuple[MarkersDone, list[MarkerResults]]] | None = None
        """Markers whose answers wait; None while they come at once."""
        self.start()

    def start(self) -> None:
        """A coordinator for every partition."""
        self.epoch += 1
        self.coordinator = TransactionCoordinator(
            self.log, self.clock, self.producer_ids, self.config, StateBudgets(self.config, self.clock.monotonic), self._write
        )
        for partition in range(self.log.partitions):
            self.coordinator.become_coordinator(partition, self.epoch)

    def crash(self) -> None:
        """Lose everything that is not stored, and start again."""
        self.held = None
        self.coordinator.close()
        self.start()

    def _write(self, markers: Sequence[Marker], done: MarkersDone) -> None:
        results: list[MarkerResults] = []
        for marker in markers:
            self.coordinator_epochs.append(marker.coordinator_epoch)
            codes: MarkerResults = {}
            for each in sorted(marker.partitions):
                codes[each] = self.refusals.get(each, ErrorCode.NONE)
                if codes[each] is ErrorCode.NONE:
                    version = marker.transaction_version
                    self.markers.append(Written(str(each), marker.producer_id, marker.producer_epoch, marker.committed, version))
            results.append(codes)
        if self.held is None:
            done(results)
        else:
            self.held.append((done, results))

    def hold_markers(self) -> None:
        """Let markers be written without saying so."""
        self.held = []

    def release_markers(self) -> None:
        """Say so."""
        held, self.held = self.held or [], None
        for done, results in held:
            done(results)

    # Requests

    def ask_init(self, transactional_id: str, producer_id: int = -1, epoch: int = -1, timeout_ms: int = MINUTE_MS) -> Asked:
        asked = Asked()
        self.coordinator.init_producer_id(transactional_id, InitProducer(asked, timeout_ms, producer_id, epoch))
        return asked

    def init(self, transactional_id: str, producer_id: int = -1, epoch: int = -1, timeout_ms: int = MINUTE_MS) -> Told | None:
        return self.ask_init(transactional_id, producer_id, epoch, timeout_ms).told

    def ask_add(self, transactional_id: str, producer_id: int, epoch: int, *names: str, old: bool = False) -> Asked:
        asked = Asked()
        version = OLD_PROTOCOL if old else EPOCH_PER_TRANSACTION
        self.coordinator.add_partitions(transactional_id, AddPartitions(asked, producer_id, epoch, partitions(*names), version))
        return asked

    def add(self, transactional_id: str, producer_id: int, epoch: int, *names: str, old: bool = False) -> ErrorCode:
        told = self.ask_add(transactional_id, producer_id, epoch, *names, old=old).told
        return NOT_YET if told is None else told.code

    def ask_end(
        self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool, old: bool = False, connection: int = 0
    ) -> Asked:
        asked = Asked()
        version = OLD_PROTOCOL if old else EPOCH_PER_TRANSACTION
        self.coordinator.end(transactional_id, EndTransaction(asked, producer_id, epoch, committed, version, connection))
        return asked

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool, old: bool = False, connection: int = 0
    ) -> Told | None:
        return self.ask_end(transactional_id, producer_id, epoch, committed=committed, old=old, connection=connection).told

    # Looks

    def state(self, transactional_id: str) -> TransactionState:
        return self.coordinator.describe(transactional_id).state

    def stored(self, transactional_id: str) -> list[TransactionMetadata | None]:
        """Every value of an id, oldest first; None is a tombstone."""
        key = encode_key(transactional_id)
        records = self.log.records(self.log.partition_for(transactional_id))
        return [None if each.value is None else decode_value(each.value) for each in records if each.key == key]

    def stored_states(self, transactional_id: str) -> list[str]:
        return ["tombstone" if each is None else each.state.label for each in self.stored(transactional_id)]

    def put(self, transactional_id: str, value: TransactionMetadata) -> None:
        """Put a value into the list, as an earlier coordinator did."""
        from moldau.broker.transactions.records import encode_value

        self.log.append(self.log.partition_for(transactional_id), [(encode_key(transactional_id), encode_value(value))], lambda _: None)
