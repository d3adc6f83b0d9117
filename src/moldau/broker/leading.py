"""The partitions that this broker leads: opened, configured, closed, and why one cannot be served."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.log_settings import TopicSettings
from moldau.broker.partition import Partition, ProduceRules
from moldau.broker.partition_table import PartitionTable
from moldau.cluster.snapshot import INTERNAL_TOPICS
from moldau.log.config import LogConfig
from moldau.model.errors import ErrorCode, MoldauError, PeerError, StorageError
from moldau.model.identity import LeaderEpoch, TopicPartition
from moldau.model.steps import UNFINISHED, Steps

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.log.partition_log import PartitionLog

_LOG = logging.getLogger(__name__)


class Leading:
    """A :class:`moldau.broker.host.PartitionHost`: what the changes of metadata ask of a broker, and what its disks do to it."""

    def __init__(self, broker: "Broker") -> None:
        self.table = PartitionTable()
        self.settings = TopicSettings(broker.config)
        self._broker = broker
        self._without_room: dict[TopicPartition, tuple[bytes, bool]] = {}
        """Partitions whose logs found no room to be made, with the topic's id, and whether they were new."""

    def storage_lost(self) -> PeerError | None:
        """KAFKA_STORAGE_ERROR when no log directory is left."""
        if not self._broker.logs.all_failed:
            return None
        return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline; the broker stops")

    def open_partition(self, topic_partition: TopicPartition, *, is_new: bool = True) -> None:
        """Begin to lead a partition that the metadata knows. PeerError KAFKA_STORAGE_ERROR, StorageError."""
        if self.table.get(topic_partition) is not None:
            return
        topic = self._broker.metadata.topics[topic_partition.topic]
        info = topic.partitions[topic_partition.partition]
        config, rules = self._settings_of(topic.name)
        try:
            log = self._broker.logs.create(topic_partition, topic.topic_id, config, self._broker.clock.time_ms(), is_new=is_new)
        except StorageError as error:
            if error.no_space:
                self._without_room[topic_partition] = topic.topic_id, is_new
            raise
        log.lead_epoch(info.leader_epoch)
        partition = Partition(log, topic.topic_id, LeaderEpoch(info.leader_epoch), rules, self._broker.counters.topic(topic.name))
        if partition.shows_flushed:
            self._flush_recovered(log)
        partition.advance()
        self.table.add(partition)
        self._broker.housekeeping.hurry(log.config.flush_ms)
        if topic.internal:
            self._broker.coordinators.opened(topic_partition)

    def open_partitions(self, wanted: Sequence[tuple[TopicPartition, bytes]]) -> Steps:
        """Begin to lead new partitions, each with its topic's id; their folders are made and brought to disk together."""
        logs = self._broker.logs
        yield from logs.make_folders(wanted)
        for topic_partition, topic_id in wanted:
            if topic_id in self._broker.metadata.topics_by_id:
                self.try_open(topic_partition, is_new=True)
            yield UNFINISHED
        yield from logs.drop_folders(topic_partition for topic_partition, _ in wanted)

    def _flush_recovered(self, log: "PartitionLog") -> None:
        """With ``visibility=flushed`` a log shows what recovery found only once it is on disk, and shows it from the start."""
        job = log.flush_job() if log.flushed_offset < log.log_end_offset else None
        if job is None:
            return
        try:
            job.run()
        except StorageError as error:
            log.flush_failed(job)
            self._broker.logs.storage_failed(log.topic_partition, error)
            raise
        log.flush_done(job)

    def remove_partitions(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Lead partitions no longer and mark their logs for deletion; who waits for them is told."""
        self.close_partitions(topic_partitions)
        self._broker.logs.mark_deleted(topic_partitions, self._broker.clock.time_ms())

    def close_partitions(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Lead partitions no longer, and keep their logs; requests that wait for them are answered with an error."""
        for topic_partition in topic_partitions:
            self._close(topic_partition)

    def topics_deleted(self, topics: Iterable[str]) -> Steps:
        """Make their removal durable, and drop the state of the deleted topics, in steps."""
        names = list(topics)
        yield from self._broker.logs.settle_deleted()
        self._broker.counters.forget_topics(names)
        if self._broker.coordinators_if_any is not None:
            yield from self._broker.coordinators_if_any.topics_deleted(names)

    def reconfigure_topic(self, topic: str) -> Steps:
        """Obey the topic's configuration as it is now."""
        yield from self._reconfigure(topic)

    def reconfigure_broker(self, changed: Iterable[str]) -> Steps:
        """Obey the broker's configuration as it is now; `changed` names what is different."""
        self._broker.reconfigured()
        for topic in list(self._broker.metadata.topics):
            yield from self._reconfigure(topic)

    def missing(self, topic: bytes, index: int, *, by_id: bool) -> PeerError:
        """Why a partition cannot be served here: what a client is told."""
        snapshot = self._broker.metadata
        info = snapshot.topics_by_id.get(topic) if by_id else snapshot.topics.get(topic.decode())
        if info is None:
            if by_id:
                return PeerError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.hex()}")
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.decode()} is not known")
        if not 0 <= index < len(info.partitions):
            return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {info.name} has no partition {index}")
        problem = self._broker.logs.problem(TopicPartition(info.name, index))
        if problem is not None:
            return PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{info.name}-{index} is offline: {problem}")
        return PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{info.name}-{index} is not led by broker {self._broker.broker_id}")

    # The world's failures

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """A log's disk failed: a full one passes, any other takes the log's directory offline.

        A partition that is closed does not count: its files may have gone under a sync, and another of its name may be there.
        """
        if partition.is_open:
            self._broker.logs.storage_failed(partition.topic_partition, error)

    def retry_full(self) -> Steps:
        """Try again to open, or to make, what a full disk kept closed; not for a later topic of the name, which may just be opened."""
        yield from self._broker.logs.retry_full(self._broker.clock.time_ms())
        waiting, self._without_room = self._without_room, {}
        for topic_partition in self._broker.logs.partitions():
            yield None
            info = self._broker.metadata.topics.get(topic_partition.topic)
            if info is not None and self.table.get(topic_partition) is None and self._broker.logs.get(topic_partition) is not None:
                waiting.setdefault(topic_partition, (info.topic_id, False))
        for topic_partition, (topic_id, is_new) in waiting.items():
            yield UNFINISHED
            info = self._broker.metadata.topics_by_id.get(topic_id)
            if info is not None and topic_partition.partition < len(info.partitions) and self.table.get(topic_partition) is None:
                self.try_open(topic_partition, is_new=is_new)

    def directory_offline(self, path: str, topic_partitions: Sequence[TopicPartition]) -> None:
        """A log directory went offline, and its partitions with it."""
        self.close_partitions(topic_partitions)

    def _close(self, topic_partition: TopicPartition) -> None:
        partition = self.table.remove(topic_partition)
        if partition is not None:
            partition.close()
            self._broker.delayed.changed(partition)
            if topic_partition.topic in INTERNAL_TOPICS:
                self._broker.coordinators.closed(topic_partition)

    def flushed(self, partition: Partition) -> None:
        """A sync has brought more of the partition's log to disk."""
        if partition.is_open and partition.advance():
            self._broker.delayed.changed(partition)

    def try_open(self, topic_partition: TopicPartition, *, is_new: bool = False) -> None:
        """Open a partition, usually one that was there before; one that cannot be stays offline alone."""
        try:
            self.open_partition(topic_partition, is_new=is_new)
        except MoldauError as error:
            _LOG.error("partition offline: partition=%s reason=%s", topic_partition, error)

    def _settings_of(self, topic: str) -> tuple[LogConfig, ProduceRules]:
        return self.settings.of(self._broker.metadata.topic_config(topic))

    def log_config_of(self, topic: str) -> LogConfig | None:
        """What the logs of a topic obey; None for one that is not known."""
        return self._settings_of(topic)[0] if topic in self._broker.metadata.topics else None

    def _reconfigure(self, topic: str) -> Steps:
        for partition in list(self.table.of_topic(topic.encode(), by_id=False).values()):
            if not partition.is_open:
                continue
            config, rules = self._settings_of(topic)  # as it is by now
            partition.log.reconfigure(config)
            partition.configure(rules)
            self._broker.housekeeping.hurry(config.flush_ms)
            if partition.advance():
                self._broker.delayed.changed(partition)
            yield UNFINISHED
