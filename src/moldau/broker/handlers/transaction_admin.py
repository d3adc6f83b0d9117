"""DescribeTransactions, ListTransactions, DescribeProducers: what administrators see of transactions (KIP-664)."""

from typing import Protocol

from moldau.broker.handlers.services import PartitionServices, TransactionServices
from moldau.broker.request import Reply, Request
from moldau.broker.transactions.listing import Filters, unknown_states
from moldau.model.errors import PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import transaction_admin as describing
from moldau.protocol.messages import transaction_admin as listing
from moldau.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


class Services(PartitionServices, TransactionServices, Protocol):
    """What these handlers use of the broker."""


def describe_transactions(services: Services, message: describing.DescribeTransactionsRequest, request: Request, reply: Reply) -> Steps:
    """One answer for each id. Codes: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
    states = []
    for transactional_id in dict.fromkeys(message.transactional_ids):
        states.append(_described(services, transactional_id))
        yield None
    reply(describing.DescribeTransactionsResponse(transaction_states=states))


def _described(services: Services, transactional_id: str) -> describing.TransactionState:
    try:
        state, transaction = services.transactions.describe(transactional_id)
    except PeerError as error:
        return describing.TransactionState(error_code=error.code, transactional_id=transactional_id)
    return describing.TransactionState(
        transactional_id=transactional_id,
        transaction_state=state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[describing.TopicData(topic, list(numbers)) for topic, numbers in sorted(transaction.partitions.by_topic())],
    )


def list_transactions(services: Services, message: listing.ListTransactionsRequest, request: Request, reply: Reply) -> Steps:
    """The ids that pass the filters. Codes: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION."""
    filters = Filters(message.state_filters, message.producer_id_filters, message.duration_filter, message.transactional_id_pattern)
    try:
        found = []
        for each in services.transactions.listed(filters):
            if each is not None:
                found.append(listing.ListedTransactionState(*each))
            yield None
    except PeerError as error:
        reply(listing.ListTransactionsResponse(error_code=error.code))
        return
    reply(
        listing.ListTransactionsResponse(
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


HANDLERS = {
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
}
