"""What a transaction asks the brokers, apart from its records: ids and epochs, partitions, the end; and who has one open.

Requests have the versions before KIP-890's: an end leaves the epoch as it is, so that it can be repeated by a process that knows id,
producer id and epoch, in any process and after any crash. That is what the decisions of a query rest on.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from moldau.client.cluster import TRANSACTION, Cluster, CoordinatorClient
from moldau.client.errors import failure
from moldau.model.errors import ErrorCode, MoldauError, PeerError, ProtocolError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.versions import VersionRange

T = TypeVar("T")

_INIT, _ADD, _END, _LIST = VersionRange(3, 4), VersionRange(0, 3), VersionRange(1, 4), VersionRange(0, 1)
ONGOING = "Ongoing"
FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Codes that mean that a transaction cannot continue: another producer took over the id, or brokers aborted it for its age."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The owner of a transactional id: the producer with this id and epoch. Without a transactional id: an idempotent producer."""

    transactional_id: str | None
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer id {self.producer_id}, epoch {self.epoch})"


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """How a transactional id stands with its coordinator."""

    state: str
    producer_id: int
    epoch: int


class TransactionRequests:
    """Asks the coordinators in the cluster of `cluster`. WorldError, PeerError; what may pass is tried again for the cluster's time-out."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorClient(cluster, TRANSACTION)

    def take_over(self, transactional_id: str | None, timeout_ms: int) -> ProducerIdentity:
        """Become the producer of an id; the former one is fenced, and its open transaction is aborted. None: of no id."""
        return self._init(transactional_id, timeout_ms, -1, -1)

    def raise_epoch(self, owner: ProducerIdentity, timeout_ms: int) -> ProducerIdentity:
        """Continue as `owner`, with a new epoch (KIP-360). PRODUCER_FENCED if another has taken over the id."""
        return self._init(owner.transactional_id, timeout_ms, owner.producer_id, owner.epoch)

    def _init(self, transactional_id: str | None, timeout_ms: int, producer_id: int, epoch: int) -> ProducerIdentity:
        from moldau.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id, timeout_ms, producer_id, epoch)

        def read(response: Any) -> ProducerIdentity:
            _check(response.error_code, _subject(transactional_id))
            return ProducerIdentity(transactional_id, response.producer_id, response.producer_epoch)

        if transactional_id is None:
            return self._patiently(lambda: read(self._cluster.anywhere(ApiKey.INIT_PRODUCER_ID, request, version=_INIT)))
        return self._coordinators.ask(transactional_id, ApiKey.INIT_PRODUCER_ID, request, read, version=_INIT)

    def add(self, owner: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions into the transaction, which begins with the first."""
        from moldau.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

        topics = [
            AddPartitionsToTxnTopic(topic, [each.partition for each in group])
            for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
        ]
        assert owner.transactional_id is not None
        request = AddPartitionsToTxnRequest([], owner.transactional_id, owner.producer_id, owner.epoch, topics)

        def read(response: Any) -> None:
            for topic in response.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    if each.partition_error_code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED):
                        raise failure(each.partition_error_code, TopicPartition(topic.name, each.partition_index))

        self._coordinators.ask(owner.transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, request, read, version=_ADD)

    def end(self, owner: ProducerIdentity, *, committed: bool) -> None:
        """Commit or abort; harmless where it has been done already. RequestFailedError with one of FENCED: it can no longer be done."""
        from moldau.protocol.messages.transactions import EndTxnRequest

        assert owner.transactional_id is not None
        request = EndTxnRequest(owner.transactional_id, owner.producer_id, owner.epoch, committed)
        self._ask(owner.transactional_id, ApiKey.END_TXN, request, lambda response: response.error_code, _END)

    def _ask(self, transactional_id: str, api_key: ApiKey, request: Any, code: Callable[[Any], int], version: VersionRange) -> None:
        self._coordinators.ask(
            transactional_id, api_key, request, lambda response: _check(code(response), _subject(transactional_id)), version=version
        )

    def standing(self, transactional_ids: Iterable[str]) -> Mapping[str, TransactionStatus]:
        """How ids stand; one that is not known is left out."""
        from moldau.protocol.messages.transaction_admin import DescribeTransactionsRequest

        found: dict[str, TransactionStatus] = {}

        def read(response: Any) -> None:
            for each in response.transaction_states:
                if each.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    _check(each.error_code, _subject(each.transactional_id))
                    found[each.transactional_id] = TransactionStatus(each.transaction_state, each.producer_id, each.producer_epoch)

        for transactional_id in transactional_ids:
            request = DescribeTransactionsRequest([transactional_id])
            self._coordinators.ask(transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, request, read)
        return found

    def open_ones(self) -> list[str]:
        """The ids that have a transaction open, of all brokers."""
        return self._patiently(self._listed)

    def _listed(self) -> list[str]:
        from moldau.protocol.messages.transaction_admin import ListTransactionsRequest

        found: list[str] = []
        for broker in self._cluster.metadata([]).brokers:
            response = self._cluster.at_broker(broker, ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest([ONGOING]), version=_LIST)
            _check(response.error_code, f"broker {broker}")
            found += [each.transactional_id for each in response.transaction_states if each.transaction_state == ONGOING]
        return found

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again what may pass: a broker that has just started still loads its transactions."""
        retry = self._cluster.retry()
        while True:
            try:
                return ask()
            except MoldauError as error:
                retry.pause(error)


def is_fenced(error: BaseException) -> bool:
    """Whether an error means that a transaction cannot continue."""
    return isinstance(error, PeerError) and not isinstance(error, ProtocolError) and error.code in FENCED


def _check(code: int, subject: str) -> None:
    if code:
        raise failure(code, subject)


def _subject(transactional_id: str | None) -> str:
    return "producer id" if transactional_id is None else f"transactional id {transactional_id}"
