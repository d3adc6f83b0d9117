"""The broker: the parts of one process that serves partitions, put together.

Order of start: the metadata store and the configuration that was changed at run time, the logs, what an interrupted deletion left, the
partitions. Order of stop: connections finish, waiting requests are answered, logs are flushed and closed; whoever made the session
with the store ends it after that.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.broker.connection import Connection
from moldau.broker.delayed import DelayedRequests
from moldau.broker.flusher import Flusher
from moldau.broker.housekeeping import TICK_MS, Housekeeping
from moldau.broker.log_settings import TopicSettings
from moldau.broker.partition import Partition, ProduceRules
from moldau.broker.partition_table import PartitionTable
from moldau.broker.staged import StagedWrites
from moldau.cluster.producer_ids import ProducerIds
from moldau.cluster.registry import NewTopic, Registry
from moldau.log.adopt import cluster_id_of
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import ErrorCode, MoldauError, PeerError, StorageError
from moldau.model.identity import LeaderEpoch, TopicPartition
from moldau.protocol.framing import ReceiveBuffer

if TYPE_CHECKING:
    from moldau.broker.configs import Configs
    from moldau.broker.topics import Topics
    from moldau.cluster.snapshot import MetadataSnapshot
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock
    from moldau.ports.coordination import Coordination
    from moldau.ports.filesystem import FileSystem
    from moldau.ports.transport import Transport

_LOG = logging.getLogger(__name__)


class Broker:
    """See the module. Everything runs on one thread, the one that `clock` calls back on."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        directories: Sequence[str],
        files: "FileSystem",
        clock: "Clock",
        background: "Background",
        coordination: "Coordination",
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.config = config
        self.broker_id = config.int("broker.id")
        self.directories = list(directories)
        self.clock = clock
        self.background = background
        self.random_bytes = random_bytes
        self.advertised: tuple[str, int] | None = None
        """Address that clients are told; None tells each the one that it connected to."""
        self.receive_buffer = ReceiveBuffer()
        self.connections: set[Connection] = set()
        self.partitions = PartitionTable()
        self.partitions_of: Callable[..., Mapping[int, Partition]] = self.partitions.of_topic
        self.registry = Registry(coordination, broker_id=self.broker_id, time_ms=clock.time_ms, random_bytes=random_bytes)
        self.producer_ids = ProducerIds(coordination, self.broker_id)
        self.delayed = DelayedRequests(clock, config.int("delayed.requests.max"))
        self.staged_writes = StagedWrites(self.delayed, self.storage_failed)
        self.flusher = Flusher(background, self._flushed, self.storage_failed)
        self.housekeeping = Housekeeping(self)
        self.logs: LogManager
        self.request_bytes_max = 0
        """Bound of a request's frame."""
        self.requests_in_flight_max = 0
        """Requests of one connection that may wait for their answers."""
        self.queued_bytes_max = 0
        """Bytes of answers that a connection may leave unread."""
        self.fetch_bytes_max = 0
        """Bytes of records in one fetch answer."""
        self.on_reconfigured: list[Callable[[], object]] = []
        """Called after the broker's configuration has changed."""
        self._files = files
        self._settings = TopicSettings(config)
        self._topics: Topics | None = None
        self._configs: Configs | None = None
        self._take_limits()

    # Start and stop

    def start(self, *, adopt: bool = False) -> None:
        """Open everything. WorldError says what stands in the way; then nothing is open."""
        now_ms = self.clock.time_ms()
        self.registry.start(cluster_id=cluster_id_of(self._files, self.directories) if adopt else None)
        snapshot = self.metadata
        if snapshot.broker_configs:
            self.configs.load()
            self._take_limits()
        self.logs = LogManager(
            self._files,
            self.directories,
            self._settings.of({})[0],
            broker_id=self.broker_id,
            cluster_id=snapshot.cluster_id,
            random_bytes=self.random_bytes,
            topic_config=self._log_config_of,
            background=self.background,
            on_offline=self._directory_offline,
        )
        self.logs.start(now_ms, adopt=adopt)
        if adopt:
            self._register_adopted()
        self._finish_deletions(now_ms)
        for topic in self.metadata.topics.values():
            for index, info in enumerate(topic.partitions):
                if info.leader == self.broker_id:
                    self._try_open(TopicPartition(topic.name, index))
        self.housekeeping.start()

    def stop(self) -> None:
        """Answer what waits, flush and close the logs."""
        self.housekeeping.stop()
        self.delayed.close()
        for partition in self.partitions:
            partition.close()
        self.logs.shutdown()

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {
            "connections": len(self.connections),
            "partitions_led": len(self.partitions),
            "requests_delayed": self.delayed.waiting,
            **self.logs.statistics(),
        }

    @property
    def topics(self) -> "Topics":
        """The life of topics; loaded when first asked for."""
        if self._topics is None:
            from moldau.broker.topics import Topics

            self._topics = Topics(self.registry, self.config, self)
        return self._topics

    @property
    def configs(self) -> "Configs":
        """Configurations that change at run time; loaded when first asked for."""
        if self._configs is None:
            from moldau.broker.configs import Configs

            self._configs = Configs(self.registry, self.config, self, self.broker_id)
        return self._configs

    # Connections

    def accept(self, transport: "Transport") -> Connection:
        """The receiver of a new connection."""
        connection = Connection(self, transport)
        self.connections.add(connection)
        return connection

    def advertised_to(self, local: tuple[str, int]) -> tuple[str, int]:
        """Address of this broker for a client that connected to `local`."""
        return self.advertised or local

    def finish_connections(self) -> None:
        """Take no more requests; each connection closes once its answers have left."""
        for connection in list(self.connections):
            connection.finish()

    # Partitions

    @property
    def metadata(self) -> "MetadataSnapshot":
        """The cluster as requests see it."""
        return self.registry.snapshot

    def open_partition(self, topic_partition: TopicPartition, *, is_new: bool = True) -> None:
        """Begin to lead a partition that the metadata knows. PeerError KAFKA_STORAGE_ERROR, StorageError."""
        if self.partitions.get(topic_partition) is not None:
            return
        topic = self.metadata.topics[topic_partition.topic]
        info = topic.partitions[topic_partition.partition]
        config, rules = self._settings_of(topic.name)
        log = self.logs.create(topic_partition, topic.topic_id, config, self.clock.time_ms(), is_new=is_new)
        log.assign_leader_epoch(info.leader_epoch)
        partition = Partition(log, topic.topic_id, LeaderEpoch(info.leader_epoch), rules)
        partition.advance()
        self.partitions.add(partition)
        if partition.shows_flushed and log.flushed_offset < log.written_offset:
            self.flusher.request(partition)
        if log.config.flush_ms < TICK_MS:
            self.housekeeping.hurry()

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Lead a partition no longer and mark its log for deletion; who waits for it is told."""
        self._close(topic_partition)
        self.logs.delete([topic_partition], self.clock.time_ms())

    def reconfigure_topic(self, topic: str) -> None:
        """Obey the topic's configuration as it is now."""
        self._reconfigure(topic)
        self.housekeeping.hurry()

    def reconfigure_broker(self, changed: Iterable[str]) -> None:
        """Obey the broker's configuration as it is now; `changed` names what is different."""
        self._take_limits()
        for topic in list(self.metadata.topics):
            self._reconfigure(topic)
        self.housekeeping.hurry()
        for listener in self.on_reconfigured:
            listener()

    def missing_partition(self, topic: bytes, index: int, *, by_id: bool) -> PeerError:
        """Why a partition cannot be served here: what a client is told."""
        snapshot = self.metadata
        info = snapshot.topics_by_id.get(topic) if by_id else snapshot.topics.get(topic.decode())
        if info is None:
            if by_id:
                return PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.hex()}")
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.decode()} is not known")
        if not 0 <= index < len(info.partitions):
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {info.name} has no partition {index}")
        problem = self.logs.problem(TopicPartition(info.name, index))
        if problem is not None:
            return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{info.name}-{index} is offline: {problem}")
        return PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{info.name}-{index} is not led by broker {self.broker_id}")

    # The world's failures

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """A log's disk failed: a full one passes, any other takes the log's directory offline."""
        self.logs.storage_failed(partition.topic_partition, error)

    def retry_full(self) -> None:
        """Try again to open what a full disk kept closed."""
        self.logs.retry_full(self.clock.time_ms())
        for topic_partition, _ in list(self.logs.logs()):
            info = self.metadata.topics.get(topic_partition.topic)
            if info is not None and topic_partition.partition < len(info.partitions) and self.partitions.get(topic_partition) is None:
                self._try_open(topic_partition)

    def _directory_offline(self, path: str, topic_partitions: Sequence[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self._close(topic_partition)

    def _close(self, topic_partition: TopicPartition) -> None:
        partition = self.partitions.remove(topic_partition)
        if partition is not None:
            partition.close()
            self.delayed.changed(partition)

    # Parts of the above

    def _flushed(self, partition: Partition) -> None:
        if partition.is_open and partition.advance():
            self.delayed.changed(partition)

    def _try_open(self, topic_partition: TopicPartition) -> None:
        """Open a partition that was there before; one that cannot be stays offline alone."""
        try:
            self.open_partition(topic_partition, is_new=False)
        except MoldauError as error:
            _LOG.error("partition offline: partition=%s reason=%s", topic_partition, error)

    def _settings_of(self, topic: str) -> tuple[LogConfig, ProduceRules]:
        return self._settings.of(self.metadata.topic_config(topic))

    def _log_config_of(self, topic: str) -> LogConfig | None:
        return self._settings_of(topic)[0] if topic in self.metadata.topics else None

    def _reconfigure(self, topic: str) -> None:
        config, rules = self._settings_of(topic)
        for partition in self.partitions_of(topic.encode(), by_id=False).values():
            partition.log.reconfigure(config)
            partition.configure(rules)
            if partition.advance():
                self.delayed.changed(partition)

    def _register_adopted(self) -> None:
        found = [topic for topic in self.logs.adopt_topics() if topic.name not in self.metadata.topics]
        if found:
            self.registry.create_topics(
                [NewTopic(topic.name, topic.topic_id, [[self.broker_id]] * topic.partitions, topic.configs) for topic in found]
            )

    def _finish_deletions(self, now_ms: int) -> None:
        """Deletions that the last stop interrupted between their mark and their end."""
        topics = sorted(self.registry.deleting)
        if topics:
            self.logs.delete([each for each in self.logs.partitions() if each.topic in topics], now_ms)
            self.registry.finish_deletion(topics)

    def _take_limits(self) -> None:
        config = self.config
        self.request_bytes_max = config.int("socket.request.max.bytes")
        self.requests_in_flight_max = config.int("connection.max.in.flight.requests")
        self.queued_bytes_max = config.int("connection.queued.max.bytes")
        self.fetch_bytes_max = config.int("fetch.max.bytes")
        self.delayed.requests_max = config.int("delayed.requests.max")
