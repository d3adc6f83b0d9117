"""Writes records to ``_schemas``, as the only one: whoever wrote before is fenced off by the log itself.

A writer is known to the brokers by a transactional id that all registries of a group share. To become the writer means to ask for its
producer id, which raises the epoch, and to append a NOOP record with it: from then on the partition refuses the epoch of the writer before
(KIP-98), also a request that was on its way for an hour. What lies before the NOOP is then all there ever will be from others; it is read
before anything is decided. The records themselves are plain ones, not transactions: every reader sees them at once, Confluent's too. They
carry sequence numbers, so one that is sent again after a lost connection leaves one copy.
"""

import time
from typing import TYPE_CHECKING, Any

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.client.partition_requests import Answers
from moldau.model.errors import ErrorCode, MoldauError, PeerError, ProtocolError
from moldau.model.identity import BrokerId, TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.versions import VersionRange
from moldau.registry.records import NoopKey, encode_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.registry.decisions import Write

_TRANSACTION = 1
"""The kind of key that FindCoordinator looks up."""
_BATCHED = VersionRange(4, 6)
_NAMED = VersionRange(3, 12)
"""Versions of Produce that name topics."""
_TRANSACTION_TIMEOUT_MS = 10_000
_ALL_REPLICAS = -1
_SEQUENCES = 2**31
_BATCH_RECORDS_MAX = 1000

_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_LOST_TRACK = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class FencedError(MoldauError):
    """Another registry writes now, or the partition has forgotten this writer: it has to be made the writer again before it goes on."""


class Writer:
    """Appends to partition 0 of `topic`. One thread uses it at a time."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, *, timeout_s: float = 30.0) -> None:
        self.topic = topic
        self.transactional_id = transactional_id
        self._where = TopicPartition(topic, 0)
        self._cluster = Cluster(bootstrap, client_id="moldau-registry", timeout_s=timeout_s)
        self._producer: tuple[int, int] | None = None
        self._sequence = 0

    @property
    def ready(self) -> bool:
        """Whether it is the writer, as far as it knows."""
        return self._producer is not None

    def take_over(self) -> int:
        """Become the writer; the offset behind the NOOP, before which everything has to be read. WorldError, PeerError, FencedError."""
        self._producer = self._init_producer()
        self._sequence = 0
        return self.append_all([(encode_key(NoopKey()), None)])

    def append_all(self, writes: "Sequence[Write]") -> int:
        """Write records to all in-sync replicas; the offset behind the last. So many that they make several batches are several steps.

        FencedError: it was not written. RequestFailedError: the broker refuses it. WorldError: it may have been written or not; the
        writer has given up its place.
        """
        end = 0
        for start in range(0, len(writes), _BATCH_RECORDS_MAX):
            end = self._append(writes[start : start + _BATCH_RECORDS_MAX])
        return end

    def _append(self, writes: "Sequence[Write]") -> int:
        """Write one batch, all of it or nothing; the offset behind it."""
        assert self._producer is not None, "not the writer"
        builder = RecordBatchBuilder(producer_id=self._producer[0], producer_epoch=self._producer[1], base_sequence=self._sequence)
        now_ms = time.time_ns() // 1_000_000
        for key, value in writes:
            builder.append(now_ms, key, value)
        message = ProduceRequest(
            transactional_id=None,
            acks=_ALL_REPLICAS,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(0, builder.build())])],
        )
        try:
            offset = self._produce(message)
        except PeerError as error:
            if error.code in _FENCED or error.code in _LOST_TRACK:
                self.resign()
                raise FencedError(f"topic {self.topic}: {error.message}") from error
            self.resign()
            raise
        except BaseException:
            self.resign()
            raise
        self._sequence = (self._sequence + len(writes)) % _SEQUENCES
        return offset + len(writes)

    def resign(self) -> None:
        """Be the writer no longer; nothing is sent."""
        self._producer = None

    def close(self) -> None:
        """End what is under way in another thread, and close the connections."""
        self._cluster.interrupt()
        self.resign()
        self._cluster.close()

    def _produce(self, message: ProduceRequest) -> int:
        """The offset of the first record."""

        def read(response: Any, _partitions: list[TopicPartition]) -> Answers[int]:
            answers: Answers[int] = {}
            for topic in response.responses:
                for partition in topic.partition_responses:
                    where = TopicPartition(topic.name, partition.index)
                    code = partition.error_code
                    answers[where] = failure(code, where, partition.error_message) if code else partition.base_offset
            return answers

        return self._cluster.at_leaders(ApiKey.PRODUCE, [self._where], lambda _partitions: message, read, version=_NAMED)[self._where]

    def _init_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        retry = self._cluster.retry()
        while True:
            try:
                response = self._cluster.at_broker(self._coordinator(), ApiKey.INIT_PRODUCER_ID, request)
                if response.error_code:
                    raise failure(response.error_code, f"transactional id {self.transactional_id}")
                return response.producer_id, response.producer_epoch
            except MoldauError as error:
                retry.pause(error)

    def _coordinator(self) -> BrokerId:
        request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[self.transactional_id])
        response = self._cluster.anywhere(ApiKey.FIND_COORDINATOR, request, version=_BATCHED)
        if len(response.coordinators) != 1:
            raise ProtocolError(f"transactional id {self.transactional_id}: {len(response.coordinators)} coordinators for one")
        found = response.coordinators[0]
        if found.error_code:
            raise failure(found.error_code, f"transactional id {self.transactional_id}", found.error_message)
        return BrokerId(found.node_id)
