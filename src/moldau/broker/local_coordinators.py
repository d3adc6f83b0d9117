"""The coordinators of a broker, of groups and of transactions, with the internal topics that keep their state.

Made when the first partition of such a topic is opened, or when a client first asks for a coordinator: a broker without groups and
transactions imports nothing of them.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.state_topic import StateTopic
from moldau.broker.groups.coordinator import GroupCoordinator
from moldau.broker.groups.deletion import CompletionCounter
from moldau.cluster.internal_topics import OFFSETS, TRANSACTIONS

if TYPE_CHECKING:
    from moldau.broker.admission.admission import Admission
    from moldau.broker.coordinators.state_topic import Services as StateTopicServices
    from moldau.broker.transactions.coordinator import TransactionCoordinator
    from moldau.broker.transactions.marker_receipts import MarkerReceipts
    from moldau.broker.transactions.marker_router import MarkerRouter
    from moldau.broker.transactions.marker_router import Services as MarkerServices
    from moldau.broker.transactions.markers import Marker, MarkersDone
    from moldau.broker.transactions.remote import PartitionCodes, Question, RemoteCoordinators
    from moldau.cluster.producer_ids import ProducerIds
    from moldau.model.identity import TopicPartition

    class Services(MarkerServices, StateTopicServices, Protocol):
        """What they use of the broker."""

        on_reconfigured: list[Callable[[], object]]
        """Called after the broker's configuration has changed."""

        @property
        def admission(self) -> "Admission":
            """Budgets of state."""

        @property
        def producer_ids(self) -> "ProducerIds":
            """Gives out the ids of producers."""

        @property
        def random_bytes(self) -> Callable[[int], bytes]:
            """So many of them."""


_LOG = logging.getLogger(__name__)


class Coordinators:
    """See the module."""

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        self.offsets_topic = StateTopic(broker, OFFSETS)
        self.transactions_topic = StateTopic(broker, TRANSACTIONS)
        self.groups = GroupCoordinator(self.offsets_topic, broker.clock, broker.config, broker.admission.state, broker.random_bytes)
        broker.on_reconfigured.append(self.groups.load_refused)
        self._transactions: TransactionCoordinator | None = None
        self._marker_receipts: MarkerReceipts | None = None
        self._router: MarkerRouter | None = None
        self._remote: RemoteCoordinators | None = None
        self._closed = False

    @property
    def transactions(self) -> "TransactionCoordinator":
        """The coordinator of transactions; loaded when first asked for."""
        if self._transactions is None:
            from moldau.broker.transactions.coordinator import TransactionCoordinator

            broker = self._broker
            self._transactions = TransactionCoordinator(
                self.transactions_topic,
                broker.clock,
                broker.producer_ids,
                broker.config,
                broker.admission.state,
                self._write_markers,
                self._ask_elsewhere,
            )
            broker.on_reconfigured.append(self._transactions.load_refused)
        return self._transactions

    @property
    def marker_receipts(self) -> "MarkerReceipts":
        """What coordinators on other brokers have sent; loaded when first asked for."""
        if self._marker_receipts is None:
            from moldau.broker.transactions.marker_receipts import MarkerReceipts

            self._marker_receipts = MarkerReceipts()
        return self._marker_receipts

    @property
    def transactions_if_any(self) -> "TransactionCoordinator | None":
        """The same, None if nothing has asked for it."""
        return self._transactions

    def elected(self, topic_partition: "TopicPartition") -> None:
        """As `PartitionListener`."""
        if not self._closed:
            coordinator = self.groups if topic_partition.topic == OFFSETS.name else self.transactions
            coordinator.become_coordinator(topic_partition.partition, self._epoch_of(topic_partition))

    def epoch_raised(self, topic_partition: "TopicPartition") -> None:
        """As `PartitionListener`."""
        if not self._closed:
            coordinator = self.groups if topic_partition.topic == OFFSETS.name else self.transactions
            coordinator.runtime.epoch_raised(topic_partition.partition, self._epoch_of(topic_partition))

    def _epoch_of(self, topic_partition: "TopicPartition") -> int:
        led = self._broker.replicas.partitions.get(topic_partition)
        assert led is not None, "a partition that is led"
        return led.machine.leader_epoch

    def resigned(self, topic_partition: "TopicPartition") -> None:
        """As `PartitionListener`."""
        if topic_partition.topic == OFFSETS.name:
            self.groups.resign(topic_partition.partition)
        elif self._transactions is not None:
            self._transactions.resign(topic_partition.partition)

    def epoch_of(self, producer_id: int) -> int | None:
        """As :meth:`moldau.broker.transactions.coordinator.TransactionCoordinator.epoch_of`."""
        return None if self._transactions is None else self._transactions.epoch_of(producer_id)

    def _write_markers(self, markers: "Sequence[Marker]", done: "MarkersDone") -> None:
        """Write markers wherever their partitions are led."""
        if self._router is None:
            if len(self._broker.metadata.brokers) <= 1:
                from moldau.broker.transactions.markers import write_markers

                write_markers(self._broker, markers, done)
                return
            from moldau.broker.transactions.marker_router import MarkerRouter

            self._router = MarkerRouter(self._broker)
        self._router.write(markers, done)

    def _ask_elsewhere(self, question: "Question", done: "Callable[[PartitionCodes], object]") -> None:
        """Ask the coordinator of a transactional id, on another broker."""
        if self._remote is None:
            from moldau.broker.transactions.remote import RemoteCoordinators

            self._remote = RemoteCoordinators(self._broker, self.transactions_topic)
        self._remote.ask(question, done)

    def topics_deleted(self, names: Sequence[str], done: Callable[[], object]) -> None:
        """Topics are deleted: remove the offsets that groups have committed there, beside the rest, and call `done` then."""
        removals = self.groups.forget_topics(names, self._topic_id)
        one_ended = CompletionCounter(len(removals), lambda _error: done())

        def ended(error: Exception | None) -> None:
            if error is not None:
                _LOG.error("offsets in deleted topics not removed because of a bug: topics=%s", ",".join(names), exc_info=error)
            one_ended(None)

        for steps in removals:
            self.groups.runtime.run_steps(steps, ended, droppable=False)

    def _topic_id(self, name: str) -> bytes | None:
        topic = self._broker.metadata.topics.get(name)
        return None if topic is None else topic.topic_id

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {**self.groups.statistics(), **({} if self._transactions is None else self._transactions.statistics())}

    def close(self) -> None:
        """The broker stops: requests that wait are answered, and timers end."""
        if self._closed:
            return
        self._closed = True
        self.groups.close()
        if self._transactions is not None:
            self._transactions.close()
        for each in (self._router, self._remote):
            if each is not None:
                each.close()
