"""Record batches on their way to the leaders of their partitions: one for each partition at a time, sent while the next are made.

Whatever goes wrong with a batch (a leader that moved, a connection lost) it is sent again until the time is over, before anything that
comes after it in its partition. With a producer id the brokers know one that they have already, so nothing is doubled or out of order.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError, failure
from moldau.client.partition_requests import Answers
from moldau.model.errors import ErrorCode, MoldauError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.client.connection import BrokerConnection, PendingRequest

_VERSIONS = VersionRange(3, 11)
"""Those that add no partition to a transaction by themselves and name topics by name."""
_ALREADY_THERE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
ACKS_ALL = -1


class PartitionBatch(NamedTuple):
    """A record batch as it is sent, and which of the task's rows it holds, ascending and counted from 0."""

    data: bytes | bytearray
    rows: Sequence[int]


class DeliveryError(MoldauError):
    """Records that a broker did not take; the message names topic, partition and rows."""

    def __init__(self, where: TopicPartition, rows: Sequence[int], cause: MoldauError) -> None:
        what = f"row {rows[0]}" if len(rows) == 1 else f"{len(rows)} rows from row {rows[0]} to row {rows[-1]}"
        super().__init__(f"topic {where.topic}, partition {where.partition}: {what} of the task not written: {cause}")
        self.where = where
        self.cause = cause


class BatchSender(Cluster):
    """Sends to the leaders in the cluster of `bootstrap`. One thread uses it."""

    def __init__(self, bootstrap: str, *, client_id: str, timeout_s: float, request_timeout_ms: int, acks: int = ACKS_ALL) -> None:
        super().__init__(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self._request_timeout_ms = request_timeout_ms
        self._acks = acks
        self._transactional_id: str | None = None
        self._batches: Mapping[TopicPartition, PartitionBatch] = {}
        self._sent: list[tuple[BrokerConnection, PendingRequest, list[TopicPartition]]] = []

    def send(self, batches: Mapping[TopicPartition, PartitionBatch], transactional_id: str | None) -> None:
        """Send a batch to each of some partitions; `wait` comes before the next."""
        assert not self._batches, "one batch for each partition at a time"
        self._batches, self._transactional_id = batches, transactional_id
        by_leader, _ = self._by_leader(list(batches))
        for broker, partitions in by_leader.items():
            try:
                connection = self._connection(self._address(broker))
                pending = connection.send(ApiKey.PRODUCE, self._request(partitions), version=_VERSIONS)
            except MoldauError:
                continue  # `wait` sends what has no answer
            self._sent.append((connection, pending, partitions))

    def wait(self) -> dict[TopicPartition, int]:
        """Until all that was sent is in the log: the offset of each batch, -1 where an earlier try put it there. DeliveryError."""
        done: dict[TopicPartition, int] = {}
        while self._sent:
            connection, pending, partitions = self._sent.pop(0)
            try:
                answers = self._read(connection.receive(pending), partitions)
            except MoldauError:
                continue
            for where, answer in answers.items():
                if isinstance(answer, int):
                    done[where] = answer
                elif not answer.code.retriable:
                    self._drop()
                    raise self._delivery_error(where, answer)
                else:
                    self._leaders.forget(where)
        left = [where for where in self._batches if where not in done]
        for where in left:
            try:
                done |= self.at_leaders(ApiKey.PRODUCE, [where], self._request, self._read, version=_VERSIONS)
            except MoldauError as error:
                raise self._delivery_error(where, error) from error
        self._batches = {}
        return done

    def close(self) -> None:
        """Close all connections; what was sent and not waited for may be in the log or not."""
        self._drop()
        super().close()

    def _drop(self) -> None:
        """Forget answers that are to come: they are not read."""
        for connection, _, _ in self._sent:
            connection.close()
        self._sent.clear()

    def _request(self, partitions: list[TopicPartition]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for where in partitions:
            topics.setdefault(where.topic, []).append(PartitionProduceData(where.partition, self._batches[where].data))
        data = [TopicProduceData(topic, partition_data=each) for topic, each in topics.items()]
        return ProduceRequest(self._transactional_id, self._acks, self._request_timeout_ms, data)

    def _read(self, response: Any, _: list[TopicPartition]) -> Answers[int]:
        answers: Answers[int] = {}
        for topic in response.responses:
            for each in topic.partition_responses:
                where = TopicPartition(topic.name, each.index)
                if each.error_code and each.error_code != _ALREADY_THERE:
                    answers[where] = _refusal(where, each)
                else:
                    answers[where] = each.base_offset if not each.error_code else -1
        return answers

    def _delivery_error(self, where: TopicPartition, error: MoldauError) -> DeliveryError:
        rows = self._batches[where].rows
        if isinstance(error, RefusedRecordError) and 0 <= error.batch_index < len(rows):
            rows = rows[error.batch_index : error.batch_index + 1]
        return DeliveryError(where, rows, error)


class RefusedRecordError(RequestFailedError):
    """A batch refused for one of its records."""

    def __init__(self, error: RequestFailedError, batch_index: int) -> None:
        super().__init__(error.code, error.message, error.subject)
        self.batch_index = batch_index


def _refusal(where: TopicPartition, answer: Any) -> RequestFailedError:
    error = failure(answer.error_code, where, answer.error_message)
    if answer.record_errors:
        first = answer.record_errors[0]
        detail = first.batch_index_error_message or answer.error_message
        return RefusedRecordError(failure(answer.error_code, where, detail), first.batch_index)
    return error
