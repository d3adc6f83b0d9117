"""DescribeTransactions and ListTransactions: what people and tools ask about transactional ids (KIP-664, KIP-994, KIP-1152)."""

from typing import TYPE_CHECKING

from moldau.broker.request import Reply, Request
from moldau.broker.transactions.listing import Filters, unknown_states
from moldau.model.errors import PeerError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import describe_transactions as describing
from moldau.protocol.messages import list_transactions as listing

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


def handle_describe(broker: "Broker", request: describing.DescribeTransactionsRequest, context: Request, reply: Reply) -> Steps:
    """One answer for each id. Codes: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        states.append(_described(broker, transactional_id))
        yield None
    reply(describing.DescribeTransactionsResponse(transaction_states=states))


def _described(broker: "Broker", transactional_id: str) -> describing.TransactionState:
    try:
        state, transaction = broker.transactions.describe(transactional_id)
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


def handle_list(broker: "Broker", request: listing.ListTransactionsRequest, context: Request, reply: Reply) -> Steps:
    """The ids that pass the filters. Codes: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION."""
    filters = Filters(request.state_filters, request.producer_id_filters, request.duration_filter, request.transactional_id_pattern)
    try:
        found = []
        for each in broker.transactions.listed(filters):
            if each is not None:
                found.append(listing.TransactionState(*each))
            yield None
    except PeerError as error:
        reply(listing.ListTransactionsResponse(error_code=error.code))
        return
    reply(
        listing.ListTransactionsResponse(
            unknown_state_filters=unknown_states(request.state_filters),
            transaction_states=found,
        )
    )


HANDLERS = {ApiKey.DESCRIBE_TRANSACTIONS: handle_describe, ApiKey.LIST_TRANSACTIONS: handle_list}
