"""The internal topic of a coordinator: a :class:`moldau.broker.coordinators.state_log.StateLog` on partitions that this broker leads.

The topic is made when it is first needed (:mod:`moldau.cluster.internal_topics`). An append is one batch, on the broker's
thread: in the log and in the page cache when it returns. Reading it back is in :mod:`moldau.broker.coordinators.loading`.
"""

import logging
from functools import lru_cache, partial
from struct import unpack
from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.loading import StateLoads
from moldau.broker.coordinators.state_log import EncodedRecords
from moldau.broker.replicas.append_batch import AppendBatch
from moldau.broker.replicas.isr import is_followed, silence_max_s
from moldau.broker.replicas.partition import ACKS_ALL
from moldau.broker.replicas.partition_events import Level
from moldau.cluster.internal_topics import InternalTopic, internal_topic_spec
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.model.steps import Steps, Suspension
from moldau.ports.probe import reached
from moldau.protocol.records.builder import encode_record, encoded_batch
from moldau.protocol.records.compression import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moldau.broker.coordinators.state_log import Done, KeyValue, LoadedBatch, TransactionalProducer
    from moldau.broker.metadata.admin import ClusterAdmin
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.cluster.snapshot import MetadataSnapshot
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock
    from moldau.protocol.records.header import BatchHeader

_LOG = logging.getLogger(__name__)

NOTES_INTERVAL_S = 60.0
"""How often the log says that the topic cannot be made; clients try again without a word, many times a second."""
SYNC_AGAIN_S = 1.0
"""After a sync that found no room, and while replicas are missing."""
NO_LEADER = -1
METADATA_LOOK_S = 0.02
METADATA_LOOKS_MAX = 50
_NOT_REPLICATED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
_WRITTEN = Level.WRITTEN
_CODECS = {"uncompressed": Compression.NONE, **{codec.name.lower(): codec for codec in Compression if codec}}


if TYPE_CHECKING:

    class Services(Protocol):
        """What an internal topic uses of the broker."""

        @property
        def admin(self) -> "ClusterAdmin":
            """Creates the topic; loaded when first asked for."""

        @property
        def broker_id(self) -> int:
            """Its own number."""

        @property
        def clock(self) -> "Clock":
            """Its time."""

        @property
        def config(self) -> "BrokerConfig":
            """As it is now."""

        @property
        def metadata(self) -> "MetadataSnapshot":
            """The cluster, at this moment."""

        @property
        def replicas(self) -> "ReplicaManager":
            """Partitions and appends."""


class StateTopic:
    """See the module."""

    def __init__(self, broker: "Services", spec: InternalTopic) -> None:
        self.name = spec.name
        self._topic = spec.name.encode()
        self._spec = spec
        self._broker = broker
        self._codec = Compression.NONE if spec.compression is None else Compression(broker.config.int(spec.compression))
        self._loads = StateLoads(broker.broker_id, broker.replicas.partitions, broker.clock)
        self._notes = LogThrottle(NOTES_INTERVAL_S, 1)

    @property
    def exists(self) -> bool:
        """Whether the topic has been made."""
        return self.name in self._broker.metadata.topics

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, or will have once it is made."""
        topic = self._broker.metadata.topics.get(self.name)
        return self._broker.config.int(self._spec.partitions) if topic is None else len(topic.partitions)

    def partition_for(self, key: str) -> int:
        """The partition that holds the state of a group or a transactional id."""
        return java_hash(key) % self.partitions

    def may_be_led_elsewhere(self, partition: int) -> bool:
        """As :meth:`moldau.broker.coordinators.state_log.StateLog.may_be_led_elsewhere`: the session is in doubt, and a replica that could
        lead has not fetched from this one for as long as a follower lets a leader be silent before it reports it.
        """
        broker = self._broker
        if not broker.replicas.in_doubt:
            return False
        led = broker.replicas.partitions.of_topic(self._topic, by_id=False).get(partition)
        since_s = broker.clock.monotonic() - silence_max_s(broker.config)
        if led is None or is_followed(led.machine, led.machine.effective_minimum, since_s):
            return False
        reached("cluster: a coordinator answered no more, as another may have taken over")
        return True

    def leader_of(self, key: str) -> int:
        """The broker that leads the partition of a key, as far as is known here; -1 if none does."""
        topic = self._broker.metadata.topics.get(self.name)
        return NO_LEADER if topic is None else topic.partitions[self.partition_for(key)].leader

    def ensured(self) -> Steps:
        """Make the topic if it is not there. PeerError COORDINATOR_NOT_AVAILABLE if it cannot be made.

        Where another broker is controller, its metadata may come after its answer, also if it has made the topic for others before; this
        waits for a moment.
        """
        if self.exists:
            return
        spec = internal_topic_spec(self._spec, self._broker.config, len(self._broker.metadata.brokers))
        outcome = (yield from self._broker.admin.create([spec], waits=True, forwards=True))[self.name]
        if isinstance(outcome, PeerError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS and not self.exists:
            if self._notes.due(self.name, self._broker.clock.monotonic()):
                _LOG.error("internal topic not made: topic=%s reason=%s", self.name, outcome.message)
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic '{self.name}' cannot be made: {outcome.message}")
        for _ in range(METADATA_LOOKS_MAX):
            if self.exists:
                return
            yield Suspension(partial(self._broker.clock.call_later, METADATA_LOOK_S))
        raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic '{self.name}' is made, and not known here yet")

    def led(self, keys: "Sequence[str]") -> Steps:
        """Wait for up to a second while a partition of these keys has no live leader: after one died, until the controller has elected.

        To commit offsets in a transaction, librdkafka asks three times within 70 to 300 ms. Refused each time it waits for ever, whatever
        its time limit (librdkafka issue 5456).
        """
        looks = METADATA_LOOKS_MAX
        for key in keys:
            while looks and self._is_leaderless(key):
                looks -= 1
                yield Suspension(partial(self._broker.clock.call_later, METADATA_LOOK_S))
            yield None

    def _is_leaderless(self, key: str) -> bool:
        leader = self.leader_of(key)
        return leader != self._broker.broker_id and leader not in self._broker.metadata.brokers

    def append(
        self, partition: int, records: "Sequence[KeyValue]", done: "Done", producer: "TransactionalProducer | None" = None
    ) -> int | None:
        """As :meth:`moldau.broker.coordinators.state_log.StateLog.append`.

        Should a disk be lost, the partition closes, which tells its coordinator to resign; that may come before ``done(error)``.
        """
        replicas = self._broker.replicas
        led = replicas.partitions.of_topic(self._topic, by_id=False).get(partition)
        if led is None:
            done(self._not_led(partition))
            return None
        now_ms = self._broker.clock.time_ms()
        try:
            header, batch = self._build(led, records, producer, now_ms)
        except PeerError as error:
            done(error)
            return None
        appended = AppendBatch(led, batch, header)
        replicas.append_at_once(appended, now_ms)
        if appended.error is not None:
            done(_refusal(led, appended.error))
            return None
        if appended.level is _WRITTEN:
            done(None)
        else:
            self._wait(led, appended.last_offset, appended.level, done)
        return appended.base_offset

    def _wait(self, led: "HostedPartition", last_offset: int, level: Level, done: "Done") -> None:
        """``done`` when the record in the log has reached `level`. If a sync finds no room, or replicas are missing, only the answer has to
        wait: the record stays in the log, and a restart would read what an error had denied.
        """

        def ended(error: PeerError | StorageError | None) -> None:
            if error is None:
                done(None)
            elif error.no_space if isinstance(error, StorageError) else error.code in _NOT_REPLICATED:
                again = partial(self._wait, led, last_offset, Level.REPLICATED | Level.FLUSHED, done)
                self._broker.clock.call_later(SYNC_AGAIN_S, again)
            else:
                done(_refusal(led, error))

        self._broker.replicas.wait(led, last_offset, level, ended)

    def load(self, partition: int, take: "Callable[[LoadedBatch], object]", done: "Done") -> "Callable[[], object]":
        """As :meth:`moldau.broker.coordinators.state_log.StateLog.load`. One is read after the other, in the order of the calls."""
        return self._loads.add(TopicPartition(self.name, partition), take, done)

    def settled(self, partition: int, done: "Done") -> None:
        """As :meth:`moldau.broker.coordinators.state_log.StateLog.settled`."""
        led = self._broker.replicas.partitions.of_topic(self._topic, by_id=False).get(partition)
        if led is None:
            done(self._not_led(partition))
            return
        last_offset = led.log.log_end_offset - 1
        level = led.level_for(ACKS_ALL, last_offset) & Level.FLUSHED
        if last_offset >= led.machine.committed_offset:
            level |= Level.REPLICATED
        if level:
            self._wait(led, last_offset, level, done)
        else:
            done(None)

    def _not_led(self, partition: int) -> PeerError:
        return PeerError(ErrorCode.NOT_COORDINATOR, f"{self.name}-{partition} is not led by broker {self._broker.broker_id}")

    def _build(
        self, led: "HostedPartition", records: "Sequence[KeyValue]", producer: "TransactionalProducer | None", now_ms: int
    ) -> "tuple[BatchHeader, memoryview]":
        codec = _CODECS.get(led.rules.compression_type, self._codec)
        if isinstance(records, EncodedRecords):
            encoded = records.encoded
        else:
            encoded = bytearray().join([encode_record(0, delta, key, value) for delta, (key, value) in enumerate(records)])
        if producer is None:
            header, batch = encoded_batch(encoded, len(records), now_ms, codec)
        else:
            header, batch = encoded_batch(
                encoded, len(records), now_ms, codec, producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True
            )
        if len(batch) > led.limits.max_plain_bytes:
            message = f"{led.topic_partition}: batch of {len(batch)} bytes, the most is {led.limits.max_plain_bytes}"
            raise PeerError(ErrorCode.MESSAGE_TOO_LARGE, message)
        return header, memoryview(batch)


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """What Kafka's ``Utils.abs(text.hashCode())`` gives: the hash over UTF-16 units, without its sign; 0 for the least number."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (value * 31 + unit) & 0xFFFFFFFF
    if value == 1 << 31:
        return 0
    return value if value < 1 << 31 else (1 << 32) - value


def _refusal(led: "HostedPartition", error: PeerError | StorageError) -> PeerError:
    """An error of the log or its replicas, as coordinators answer it."""
    if isinstance(error, StorageError):
        return PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{led.topic_partition} cannot be written: {error}")
    if error.code in _NOT_REPLICATED:
        return PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return PeerError(ErrorCode.NOT_COORDINATOR, error.message)
    return error
