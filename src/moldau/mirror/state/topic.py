"""`_mirror_state`: made, written and read. The last record of a key counts, and each is complete, so no transaction is needed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.mirror import target_topics
from moldau.mirror.reading import list_offset, read_next
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers

STATE = TopicPartition("_mirror_state", 0)
INSIST_S = 30.0
BATCH_BYTES = 512 * 1024
"""Then another batch begins: a topic takes at least so large ones."""
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
"""It is read from the beginning, and reports come every few seconds: what is overwritten is soon removed."""
_PRODUCE = VersionRange(3, 12)
_TIMEOUT_MS = 10_000
_ACKS_ALL = -1

KeyValue = tuple[bytes, bytes | None]


async def create(brokers: "Brokers") -> None:
    """Make the topic where it is missing. PeerError, WorldError."""
    await target_topics.create(brokers, target_topics.WantedTopic(STATE.topic, 1, _CONFIGS))


async def append(brokers: "Brokers", partition: TopicPartition, records: Iterable[KeyValue], now_ms: int) -> None:
    """Write records, which may be there twice then. PeerError, WorldError."""
    builder = RecordBatchBuilder()
    for key, value in records:
        if len(builder) and builder.size + len(key) + len(value or b"") > BATCH_BYTES:
            await _produce(brokers, partition, builder)
            builder = RecordBatchBuilder()
        builder.append(now_ms, key, value)
    if len(builder):
        await _produce(brokers, partition, builder)


async def _produce(brokers: "Brokers", partition: TopicPartition, builder: RecordBatchBuilder) -> None:
    data = PartitionProduceData(partition.partition, memoryview(builder.build()))
    request = ProduceRequest(None, _ACKS_ALL, _TIMEOUT_MS, [TopicProduceData(partition.topic, partition_data=[data])])

    async def ask() -> None:
        connection = await brokers.connection(await brokers.leader(partition), "state")
        response = await connection.send(ApiKey.PRODUCE, request, timeout_s=_TIMEOUT_MS / 1000 + 5, version=_PRODUCE)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            brokers.forget_topic(partition.topic)
            code = known_error(answer.error_code)
            raise PeerError(code, f"{partition}: {code.name.lower()}" + (f": {answer.error_message}" if answer.error_message else ""))

    await brokers.insist(ask, INSIST_S)


class Tail:
    """Reads the topic from its beginning, and then what comes."""

    def __init__(self, brokers: "Brokers") -> None:
        self._brokers = brokers
        self._position: int | None = None

    async def read(self, wait_s: float) -> "list[Record]":
        """The next records; none if none come within the wait. PeerError, WorldError."""
        if self._position is None:
            self._position = await list_offset(self._brokers, STATE, EARLIEST)
        try:
            found, self._position = await read_next(self._brokers, STATE, self._position, wait_s)
        except PeerError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:  # the topic was made again
                self._position = None
            raise
        return found

    async def read_to_end(self) -> "list[Record]":
        """All records up to where the topic ends now. PeerError, WorldError: the next read has what was read until then."""
        before = self._position
        try:
            end = await list_offset(self._brokers, STATE, LATEST)
            found = await self.read(0)
            while self._position is not None and self._position < end:
                found += await self.read(0)
        except (PeerError, WorldError):
            self._position = before
            raise
        return found
