"""A transactional producer over any connection that has ``ask(request, version)``: one request at a time, nothing retried, nothing hidden.

producer = RawProducer(client.ask, "app")
producer.init()
producer.send("t", b"value")
producer.end(committed=True)
"""

import time
from collections.abc import Callable
from typing import Any

from moldau.model.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records.batch import RecordBatchBuilder, batches, iterate

TRANSACTION = 1

Ask = Callable[[Any, int], Any]


class Versions:
    """Which version of each request a producer speaks."""

    def __init__(self, init: int, add: int, produce: int, end: int, offsets: int, *, adds_itself: bool) -> None:
        self.init, self.add, self.produce, self.end, self.offsets = init, add, produce, end, offsets
        self.adds_itself = adds_itself
        """Whether it tells the coordinator of each partition before it produces to it."""


NEWEST = Versions(5, 3, 12, 5, 5, adds_itself=False)
OLDER = Versions(4, 3, 11, 4, 3, adds_itself=True)
OLDEST = Versions(0, 0, 3, 0, 0, adds_itself=True)


class RawProducer:
    """See the module."""

    def __init__(self, ask: Ask, transactional_id: str, versions: Versions = NEWEST, *, now_ms: Callable[[], int] | None = None) -> None:
        self.ask = ask
        self.transactional_id = transactional_id
        self.versions = versions
        self.producer_id, self.epoch = -1, -1
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()

    def find(self) -> ErrorCode:
        """Look for the coordinator, which makes the internal topic."""
        answer = self.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id]), 4)
        return ErrorCode(answer.coordinators[0].error_code)

    def init(self, timeout_ms: int = 60_000, *, go_on: bool = False) -> ErrorCode:
        """Get an id and an epoch; with `go_on` as the producer that has them already."""
        request = InitProducerIdRequest(self.transactional_id, timeout_ms)
        if go_on:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        answer = self.ask(request, self.versions.init)
        if answer.error_code == 0:
            self._begin(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        """Tell the coordinator of a partition."""
        topics = [AddPartitionsToTxnTopic(topic, [partition])]
        request = AddPartitionsToTxnRequest([], self.transactional_id, self.producer_id, self.epoch, topics)
        answer = self.ask(request, self.versions.add)
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Produce one batch of the transaction."""
        if self.versions.adds_itself and (topic, partition) not in self._added:
            code = self.add(topic, partition)
            if code is not ErrorCode.NONE:
                return code
            self._added.add((topic, partition))
        return self.produce(topic, *values, partition=partition)

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Produce, whoever has to add the partition."""
        request = self.request(topic, *values, partition=partition)
        answer = self.ask(request, self.versions.produce).responses[0].partition_responses[0]
        if answer.error_code == 0:
            self.sent(topic, partition, len(values))
        return ErrorCode(answer.error_code)

    def request(self, topic: str, *values: bytes, partition: int = 0) -> ProduceRequest:
        """What `produce` asks."""
        builder = RecordBatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get((topic, partition), 0),
            transactional=True,
        )
        for value in values:
            builder.append(self._now_ms(), None, value)
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, builder.build())])
        return ProduceRequest(self.transactional_id, -1, 30_000, [data])

    def sent(self, topic: str, partition: int, count: int) -> None:
        """`count` records were taken."""
        self._sequences[topic, partition] = self._sequences.get((topic, partition), 0) + count

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> ErrorCode:
        """Commit an offset with the transaction."""
        if self.versions.adds_itself:
            answer = self.ask(AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group), self.versions.add)
            if answer.error_code != 0:
                return ErrorCode(answer.error_code)
        request = TxnOffsetCommitRequest(self.transactional_id, group, self.producer_id, self.epoch)
        request.topics = [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(partition, offset)])]
        answer = self.ask(request, self.versions.offsets)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, committed: bool) -> ErrorCode:
        """Commit or abort; the next transaction begins."""
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, committed)
        answer = self.ask(request, self.versions.end)
        if answer.error_code == 0:
            self._added.clear()
            if not self.versions.adds_itself:
                self._begin(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _begin(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


def read_committed(ask: Ask, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that a reader of committed records gets from the beginning of a partition to its last stable offset."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        wanted = [FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)]
        request = FetchRequest(min_bytes=1, max_bytes=1 << 24, isolation_level=1, topics=[FetchTopic(topic, partitions=wanted)])
        answer = ask(request, 11).responses[0].partitions[0]
        assert answer.error_code == 0
        data = memoryview(bytes(answer.records or b""))
        if not data:
            return found
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        open_ones: set[int] = set()
        for header, batch in batches(data):
            while aborted and aborted[0][0] <= header.base_offset:
                open_ones.add(aborted.pop(0)[1])
            if header.is_control:
                open_ones.discard(header.producer_id)
            elif header.producer_id not in open_ones:
                found += [record.value for record in iterate(batch, max_decompressed_bytes=1 << 24) if record.offset >= offset]
            after = header.base_offset + header.last_offset_delta + 1
        offset = after
