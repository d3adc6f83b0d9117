"""The topic ``_schemas``: one partition, compacted; created if it does not exist, followed by every registry, written by one.

Brokers know a writer by a transactional id that all registries of a group share. To become the writer means to ask for its producer id,
which raises the epoch, and to append a NOOP record with it: from then on the partition refuses the epoch of the writer before (KIP-98),
even in a request that was delayed for an hour. The records before the NOOP are then all that others will ever have written; they are read
before anything is decided. The records themselves are plain ones, not transactions: every reader sees them at once, Confluent's too. They
carry sequence numbers, so one that is retried after a lost connection is stored once.

`catch_up` makes everything visible that was written so far: it asks for the end of the log and waits until all records before it are
applied.
"""

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError, failure
from moldau.client.fetched_batches import checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, Answers, FetchLimits
from moldau.model.errors import ErrorCode, MoldauError, PeerError, ProtocolError, WorldError
from moldau.model.identity import BrokerId, TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.versions import VersionRange
from moldau.registry.records import NoopKey, Write, encode_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.client.partition_requests import FetchedBatches
    from moldau.registry.state import RegistryState

log = logging.getLogger(__name__)

SCHEMAS_TOPIC = "_schemas"
_REPLICAS_WANTED = 3


class UnfitTopicError(MoldauError):
    """The topic exists and cannot hold a registry."""


def ensure_topic(cluster: "Cluster", name: str) -> None:
    """Create the topic if it does not exist. UnfitTopicError if it has several partitions, or if its retention would delete schemas."""
    try:
        found = cluster.topic(name)
    except RequestFailedError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        _create(cluster, name)
        found = cluster.topic(name)
    if len(found.partitions) != 1:
        raise UnfitTopicError(f"topic {name} has {len(found.partitions)} partitions, a schema registry needs it to have one")
    entries = Admin(cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, name))
    policy = next((entry.value for entry in entries if entry.name == "cleanup.policy"), None) or ""
    if policy != "compact":
        raise UnfitTopicError(
            f"topic {name} has cleanup.policy={policy}, so retention would delete schemas; set cleanup.policy=compact "
            f"(moldau topic alter {name} -c cleanup.policy=compact) and start the registry again"
        )


def _create(cluster: "Cluster", name: str) -> None:
    replicas = min(_REPLICAS_WANTED, len(cluster.metadata([]).brokers))
    try:
        Admin(cluster).create_topic(name, 1, replicas, {"cleanup.policy": "compact"})
    except RequestFailedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # created by another registry meanwhile
            raise
    else:
        log.info("registry topic created: topic=%s", name)


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


class WriterFencedError(MoldauError):
    """Another registry writes now, or the partition has forgotten this writer, which has to take over again before its next write."""


class SchemasTopicWriter:
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
        """Become the writer; the offset after the NOOP: all before it has to be read. WorldError, PeerError, WriterFencedError."""
        self._producer = self._init_producer()
        self._sequence = 0
        return self.append_all([(encode_key(NoopKey()), None)])

    def append_all(self, writes: "Sequence[Write]") -> int:
        """Write records to all in-sync replicas; the offset after the last. Many records are written in several batches.

        WriterFencedError: it was not written. RequestFailedError: the broker refuses it. WorldError: it may have been written or not; the
        writer has given up its place.
        """
        end = 0
        for start in range(0, len(writes), _BATCH_RECORDS_MAX):
            end = self._append(writes[start : start + _BATCH_RECORDS_MAX])
        return end

    def _append(self, writes: "Sequence[Write]") -> int:
        """Write one batch, all of it or nothing; the offset after it."""
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
                raise WriterFencedError(f"topic {self.topic}: {error.message}") from error
            self.resign()
            raise
        except BaseException:
            self.resign()
            raise
        self._sequence = (self._sequence + len(writes)) % _SEQUENCES
        return offset + len(writes)

    def resign(self) -> None:
        """Stop being the writer; nothing is sent."""
        self._producer = None

    def close(self) -> None:
        """Interrupt what another thread waits for, and close the connections."""
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


_WAIT_MS = 250
_PAUSE_S = 0.2
_ASK_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 1.0
_SAY_EVERY_S = 30.0
_BYTES_MAX = 8 << 20
_DECOMPRESSED_BYTES_MAX = 256 << 20


class TopicReadError(WorldError):
    """The log could not be read to its end in time."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic} could not be read to its end: {reason}", retriable=True)


class Follower:
    """Reads partition 0 of `topic` from its beginning into `state`, with two connections of its own."""

    def __init__(self, bootstrap: str, topic: str, state: "RegistryState", *, timeout_s: float = 30.0) -> None:
        self.topic = topic
        self._where = TopicPartition(topic, 0)
        self._state = state
        self._reading = Cluster(bootstrap, client_id="moldau-registry", timeout_s=timeout_s)
        self._asking = Cluster(bootstrap, client_id="moldau-registry", timeout_s=min(timeout_s, _ASK_TIMEOUT_S))
        self._asking_lock = threading.Lock()
        self._moved = threading.Condition()
        self._position = 0
        self._trouble = ""
        self._said_at = -_SAY_EVERY_S
        self._stopping = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="moldau-registry-follower", daemon=True)

    @property
    def position(self) -> int:
        """The offset of the next record to be applied."""
        return self._position

    def start(self) -> None:
        """Begin to read, where the log begins. WorldError, PeerError."""
        with self._asking_lock:
            self._position = self._asking.list_offsets({self._where: EARLIEST})[self._where].offset
        self._thread.start()

    def stop(self) -> None:
        """End at once, whatever is under way."""
        self._stopping.set()
        with self._moved:
            self._moved.notify_all()
        for each in (self._reading, self._asking):
            each.interrupt()
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        self._reading.close()
        if self._asking_lock.acquire(timeout=_STOP_TIMEOUT_S):
            self._asking.close()
            self._asking_lock.release()

    def read_all(self, stalled_s: float) -> int:
        """As `catch_up`, for the start: without a limit for the whole topic; TopicReadError if nothing of it is read for `stalled_s`."""
        end = self._find_end(stalled_s)
        while True:
            before = self._position
            try:
                self.wait_for(end, stalled_s)
            except TopicReadError:
                if self._position == before or self._ended or self._stopping.is_set():
                    raise
                log.info("reading registry topic: topic=%s offset=%d end=%d", self.topic, self._position, end)
            else:
                return end

    def catch_up(self, timeout_s: float) -> int:
        """Wait until all that is in the log by now is applied; its end. TopicReadError, WorldError, PeerError."""
        deadline = time.monotonic() + timeout_s
        end = self._find_end(timeout_s)
        self.wait_for(end, deadline - time.monotonic())
        return end

    def _find_end(self, timeout_s: float) -> int:
        if not self._asking_lock.acquire(timeout=timeout_s):
            raise TopicReadError(self.topic, f"after {timeout_s:.0f} s other requests still wait for its end")
        before = self._position  # what others write during the request is read too, and comes after the answer
        try:
            end = self._asking.list_offsets({self._where: LATEST})[self._where].offset
        finally:
            self._asking_lock.release()
        if end < before:
            raise TopicReadError(self.topic, f"it ends at offset {end}, and was read up to {before} before: it was deleted or truncated")
        return end

    def wait_for(self, end: int, timeout_s: float) -> None:
        """Wait until every record before `end` is applied. TopicReadError, also once nothing is read any more: what is in memory may be of
        another log then."""
        deadline = time.monotonic() + timeout_s
        with self._moved:
            while self._position < end or self._ended:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._ended or self._stopping.is_set():
                    raise TopicReadError(self.topic, self._trouble or f"after {timeout_s:.0f} s it is at offset {self._position} of {end}")
                self._moved.wait(left_s)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._step()
                except MoldauError as error:
                    if self._stopping.is_set():
                        return
                    self._note(error)
                    if isinstance(error, PeerError) and error.code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE):
                        log.critical(
                            "registry topic deleted or truncated, look-ups continue from memory, nothing is written; a restart loads only "
                            "what the topic holds now: export the schemas or restore the topic first: topic=%s reason=%s",
                            self.topic,
                            error,
                        )
                        return
                    self._warn(error)
                    self._stopping.wait(_PAUSE_S)
        except MemoryError:
            log.critical(
                "registry topic no longer read, out of memory; look-ups continue, nothing is written; restart the registry: topic=%s",
                self.topic,
            )
        finally:
            with self._moved:
                self._ended = True
                self._moved.notify_all()

    def _step(self) -> None:
        fetched = self._reading.fetch(
            self.topic, 0, self._position, FetchLimits(max_wait_ms=_WAIT_MS, max_bytes=_BYTES_MAX, partition_max_bytes=_BYTES_MAX)
        )
        position = self._apply(fetched)
        if position != self._position:
            with self._moved:
                self._position, self._trouble = position, ""
                self._moved.notify_all()

    def _apply(self, fetched: "FetchedBatches") -> int:
        position = self._position
        for header, batch in checked_batches(self._where, fetched, position):
            if not header.is_control:
                self._apply_batch(header.base_offset, batch, position)
            position = header.last_offset + 1
        return position

    def _apply_batch(self, base_offset: int, batch: memoryview, position: int) -> None:
        """Apply its records from `position` on. What cannot be read of it never will be: it is logged and skipped, for every start reads
        the topic from its beginning.
        """
        offset = max(base_offset, position)
        try:
            for record in iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX, with_headers=False):
                if record.offset >= position:
                    self._state.apply(record.offset, record.timestamp, record.key, record.value)
                offset = max(offset, record.offset + 1)
        except PeerError as error:
            log.error("registry records skipped: partition=%s offset=%d reason=%s", self._where, offset, error.message)

    def _note(self, error: MoldauError) -> None:
        with self._moved:
            self._trouble = str(error)

    def _warn(self, error: MoldauError) -> None:
        if time.monotonic() - self._said_at >= _SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.warning("registry topic not read, retrying: topic=%s reason=%s", self.topic, error)
