"""DescribeTransactions, ListTransactions, DescribeProducers: what administrators see of transactions (KIP-664). WriteTxnMarkers: the
coordinator of a transaction, on another broker or in the hands of an operator, has its outcome written here.

There is no authentication yet, so any client may end a transaction that hangs, as `kafka-transactions.sh abort` does. But a marker also
says which coordinator and which producer are the newest: after one with a made-up epoch a partition would refuse those of the real ones for
ever. So a client may send no later epoch than is known here. Other brokers
are taken at their word, within :mod:`moldau.broker.transactions.marker_receipts`.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.services import ConfigServices, CoordinatorServices, MetadataServices, PartitionServices, TransactionServices
from moldau.broker.request import Reply, Request
from moldau.broker.security import may_be_broker
from moldau.broker.transactions.listing import ListingFilters, unknown_states
from moldau.broker.transactions.marker_receipts import check_coordinator
from moldau.broker.transactions.markers import Marker, MarkerResults, write_markers
from moldau.broker.transactions.markers import Services as MarkerServices
from moldau.cluster.internal_topics import TRANSACTIONS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.transaction_admin import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition

_LOG = logging.getLogger(__name__)

FIRST_EPOCH = 0


class Services(ConfigServices, CoordinatorServices, MetadataServices, PartitionServices, TransactionServices, MarkerServices, Protocol):
    """What these handlers use of the broker."""


def describe_transactions(services: Services, message: DescribeTransactionsRequest, request: Request, reply: Reply) -> Steps:
    """One answer for each id. Codes: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
    states = []
    for transactional_id in dict.fromkeys(message.transactional_ids):
        states.append(_described(services, transactional_id))
        yield None
    reply(DescribeTransactionsResponse(transaction_states=states))


def _described(services: Services, transactional_id: str) -> DescribedTransaction:
    try:
        state, transaction = services.transactions.describe(transactional_id)
    except PeerError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[TopicData(topic, list(numbers)) for topic, numbers in sorted(transaction.partitions.by_topic())],
    )


def list_transactions(services: Services, message: ListTransactionsRequest, request: Request, reply: Reply) -> Steps:
    """The ids that pass the filters. Codes: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION."""
    filters = ListingFilters(message.state_filters, message.producer_id_filters, message.duration_filter, message.transactional_id_pattern)
    try:
        found = []
        for each in services.transactions.listed(filters):
            if each is not None:
                found.append(ListedTransactionState(*each))
            yield None
    except PeerError as error:
        reply(ListTransactionsResponse(error_code=error.code))
        return
    reply(
        ListTransactionsResponse(
            unknown_state_filters=unknown_states(message.state_filters),
            transaction_states=found,
        )
    )


def describe_producers(services: Services, message: DescribeProducersRequest, request: Request, reply: Reply) -> Steps:
    """List the producers of each partition, once."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in wanted.items():
        topics.append(described := TopicResponse(name))
        for index in indexes:
            described.partitions.append(_describe(services, name.encode(), index))
            yield None
    reply(DescribeProducersResponse(topics=topics))


def _describe(services: Services, topic: bytes, index: int) -> PartitionResponse:
    partition = services.partitions_of(topic, by_id=False).get(index)
    if partition is None:
        error = services.missing_partition(topic, index, by_id=False)
        return PartitionResponse(index, error.code, error.message)
    return PartitionResponse(
        index,
        active_producers=[ProducerState(*producer) for producer in partition.log.active_producers()],
    )


def write_txn_markers(services: Services, request: WriteTxnMarkersRequest, context: Request, reply: Reply) -> None:
    """A code for each partition of each marker: see :func:`moldau.broker.transactions.markers.write_markers` and `_check`."""
    markers = [
        Marker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            each.transaction_version,
            [TopicPartition(topic.name, index) for topic in each.topics for index in topic.partition_indexes],
            each.state_partition,
        )
        for each in request.markers
    ]

    def done(results: Sequence[MarkerResults]) -> None:
        steps = _answer(markers, results, reply)
        left = unless_few(steps, sum(map(len, results)))
        if left is not None:
            services.slices.run(left, _report)

    snapshot = services.metadata
    if request.sender_id >= 0 and may_be_broker(services.config, context.channel):
        if services.coordinators.marker_receipts.accept(request.sender_id, request.sender_epoch, request.sequence, snapshot):
            write_markers(services, markers, done, partial(check_coordinator, snapshot))
        else:
            done([dict.fromkeys(each.partitions, ErrorCode.REQUEST_TIMED_OUT) for each in markers])
        return
    topic = snapshot.topics.get(TRANSACTIONS.name)
    oldest_coordinator = 0 if topic is None else min(each.leader_epoch for each in topic.partitions)
    write_markers(services, markers, done, partial(_check, services, oldest_coordinator))


def _check(services: Services, oldest_coordinator: int, partition: "HostedPartition", marker: Marker) -> None:
    """A marker that a client sends fences no other producer or coordinator.

    PeerError: CLUSTER_AUTHORIZATION_FAILED for a coordinator's epoch later than the partition has seen, and than `oldest_coordinator`;
    INVALID_PRODUCER_EPOCH for a producer's later than the partition has seen, and than the coordinator gave; NOT_LEADER_OR_FOLLOWER while
    it is not known which that is.
    """
    seen = partition.log.producer(marker.producer_id)
    coordinator_epoch = oldest_coordinator if seen is None else max(oldest_coordinator, seen.coordinator_epoch)
    if marker.coordinator_epoch > coordinator_epoch:
        raise PeerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{partition.topic_partition}: no coordinator of producer {marker.producer_id} has epoch {marker.coordinator_epoch} yet",
        )
    if seen is None or marker.producer_epoch > seen.epoch:
        given = services.coordinators.epoch_of(marker.producer_id)
        if marker.producer_epoch > (FIRST_EPOCH if given is None else given):
            raise PeerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{partition.topic_partition}: producer {marker.producer_id} was not given epoch {marker.producer_epoch}",
            )


def _answer(markers: Sequence[Marker], results: Sequence[MarkerResults], reply: Reply) -> Steps:
    answers = []
    for marker, codes in zip(markers, results, strict=True):
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (topic, partition), code in codes.items():
            result = topics.setdefault(topic, WritableTxnMarkerTopicResult(topic, []))
            result.partitions.append(WritableTxnMarkerPartitionResult(partition, code))
            yield None
        answers.append(WritableTxnMarkerResult(marker.producer_id, list(topics.values())))
    reply(WriteTxnMarkersResponse(markers=answers))


def _report(error: Exception | None) -> None:
    if error is not None:
        _LOG.error("markers not answered because of a bug", exc_info=error)


HANDLERS = {
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
}
