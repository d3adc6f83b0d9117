"""Asks the coordinator of a transaction on another broker: a leader to which a producer sends the first batch of a transaction (KIP-890).

Nothing is repeated here: producers send again what gets a retriable code.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.broker.peers.by_broker import ConnectionsByBroker
from moldau.broker.peers.connection import PeerCallError
from moldau.model.errors import ErrorCode, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_topic import StateTopic
    from moldau.broker.peers.by_broker import Services as PeerServices

    class Services(PeerServices, Protocol):
        """What this uses of the broker."""

        @property
        def broker_id(self) -> int:
            """Its own number."""


IN_FLIGHT_MAX = 1000
TIMEOUT_S = 10.0
"""A producer's request waits for the answer."""
FOR_BROKERS = VersionRange(4, 5)
_NOT_HEARD = dict.fromkeys(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
)
"""The coordinator has not heard yet of a topic that is led here, and adds none of the partitions."""
PartitionCodes = dict[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """Whether partitions are in the transaction of a producer, or that they be added to it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Iterable[TopicPartition]
    adds: bool


class RemoteCoordinators:
    """See the module."""

    def __init__(self, broker: "Services", topic: "StateTopic") -> None:
        self._broker = broker
        self._topic = topic
        self._connections = ConnectionsByBroker(broker, "transactions", IN_FLIGHT_MAX)

    def ask(self, question: Question, done: Callable[[PartitionCodes], object]) -> None:
        """`done` with the coordinator's code for each partition, perhaps later: NOT_COORDINATOR if it is not known or is this broker,
        NETWORK_EXCEPTION if it does not answer.
        """
        partitions = list(question.partitions)
        leader = self._topic.leader_of(question.transactional_id)
        connection = None if leader == self._broker.broker_id else self._connections.to(leader)
        if connection is None:
            done(dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR))
            return

        def answered(outcome: AddPartitionsToTxnResponse | PeerCallError) -> None:
            codes = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
            if not isinstance(outcome, PeerCallError):
                codes.update(_codes_of(outcome, codes))
            done(codes)

        request = AddPartitionsToTxnRequest(transactions=[_transaction_of(question, partitions)])
        connection.request(ApiKey.ADD_PARTITIONS_TO_TXN, request, answered, timeout_s=TIMEOUT_S, version=FOR_BROKERS)

    def close(self) -> None:
        """The broker stops."""
        self._connections.close()


def _transaction_of(question: Question, partitions: Iterable[TopicPartition]) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name, [])).partitions.append(index)
    return AddPartitionsToTxnTransaction(
        question.transactional_id,
        question.producer_id,
        question.producer_epoch,
        verify_only=not question.adds,
        topics=list(topics.values()),
    )


def _codes_of(response: AddPartitionsToTxnResponse, wanted: PartitionCodes) -> PartitionCodes:
    if response.error_code:
        return dict.fromkeys(wanted, known_error(response.error_code))
    found = {
        TopicPartition(topic.name, each.partition_index): known_error(each.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
    }
    return {partition: _NOT_HEARD.get(code, code) for partition, code in found.items() if partition in wanted}
