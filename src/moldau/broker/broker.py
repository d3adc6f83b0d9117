"""The broker: the parts of one process that serves partitions, put together.

Order of start: the metadata store and the configuration that was changed at run time, the logs, what an interrupted deletion left, the
partitions. Order of stop: connections finish, waiting requests are answered, logs are flushed and closed; whoever made the session
with the store ends it after that.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.broker.admin_log import AdminLog
from moldau.broker.admission.admission import Admission
from moldau.broker.api.pipeline import Pipeline
from moldau.broker.delayed import DelayedRequests
from moldau.broker.handlers.produce.walks import BatchWalks
from moldau.broker.host import SnapshotHost
from moldau.broker.housekeeping import Housekeeping
from moldau.broker.metrics.counters import Counters
from moldau.broker.network.connection import Connection
from moldau.broker.quotas.quotas import NO_QUOTAS
from moldau.broker.replicas.manager import ReplicaManager
from moldau.broker.replicas.rules import SettingsCache
from moldau.broker.security.authorizer import AllowAll
from moldau.cluster.producer_ids import ProducerIds
from moldau.cluster.registry import NewTopic, Registry
from moldau.cluster.snapshot import Endpoint
from moldau.log.cache import OPEN_FILES_MAX, SegmentCache
from moldau.log.manager import LogManager
from moldau.model.config.store import BrokerConfig
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps, drain
from moldau.protocol.framing import ReceiveBuffer

if TYPE_CHECKING:
    from moldau.broker.configs import Configs
    from moldau.broker.coordinators.coordinators import Coordinators
    from moldau.broker.groups.coordinator import GroupCoordinator
    from moldau.broker.topics import Topics
    from moldau.broker.transactions.coordinator import TransactionCoordinator
    from moldau.cluster.snapshot import MetadataSnapshot
    from moldau.log.log_set import AllFailedListener
    from moldau.log.partition_log import PartitionLog
    from moldau.ports.background import Background
    from moldau.ports.clock import Clock
    from moldau.ports.coordination import EmbeddedCoordination
    from moldau.ports.filesystem import FileSystem
    from moldau.ports.transport import Transport
    from moldau.ports.workers import Workers

_LOG = logging.getLogger(__name__)


def _report(error: Exception | None) -> None:
    if error is not None:
        _LOG.error("connections not finished because of a bug", exc_info=error)


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
        compute: "Background | None" = None,
        recompress: "Background | None" = None,
        coordination: "EmbeddedCoordination",
        random_bytes: Callable[[int], bytes],
        workers: "Callable[[], Workers] | None" = None,
        log_files_max: int = OPEN_FILES_MAX,
        on_all_failed: "AllFailedListener" = lambda _failure: None,
    ) -> None:
        """`background` has a few threads for calls that wait for the disk; `compute` one for work that takes the processor (and with it the
        interpreter's lock, which more threads would take from this one more often), `recompress` one for compressing, which needs no lock
        and takes long; without them that is `background`.

        `workers` gives those for work that burns a processor, once there is some; without them nothing is compacted.

        `log_files_max`: files of segments that are kept open, of all logs together.

        `on_all_failed` is told when the last log directory is lost: there is nothing left to serve.
        """
        self.config = config
        self.admin_log = AdminLog(clock)
        self.broker_id = config.int("broker.id")
        self.directories = list(directories)
        self.clock = clock
        self.background = background
        self.compute = compute or background
        self.workers = workers
        self.random_bytes = random_bytes
        self.advertised: Mapping[str, Endpoint] = {}
        """Advertised addresses by listener; a client of one that is missing receives the address that it connected to."""
        self.receive_buffer = ReceiveBuffer(is_short=lambda: self.request_memory.exhausted)
        self.connections: dict[Connection, None] = {}
        self.connections_made = 0
        self.counters = Counters(clock.monotonic)
        self.topic_settings = SettingsCache(config)
        self.registry = Registry(coordination, broker_id=self.broker_id, time_ms=clock.time_ms, random_bytes=random_bytes)
        self.admission = Admission(clock, config)
        self.request_memory = self.admission.memory
        self.batch_walks = BatchWalks(clock, self.request_memory, self.compute, recompress or background)
        self.producer_ids = ProducerIds(coordination, self.broker_id)
        self.slices = self.admission.slices
        self.delayed = DelayedRequests(clock, config.int("delayed.requests.max"))
        self.housekeeping = Housekeeping(self)
        self.replicas = ReplicaManager(
            self.broker_id,
            clock=clock,
            background=background,
            metadata=self.registry,
            delayed=self.delayed,
            counters=self.counters,
            elected=lambda topic_partition: self.coordinators.opened(topic_partition),
            resigned=lambda topic_partition: self.coordinators.closed(topic_partition),
            flush_interval=self.housekeeping.hurry,
        )
        self.partitions = self.replicas.partitions
        self.partitions_of = self.partitions.of_topic
        self.missing_partition = self.replicas.missing
        self.storage_failed = self.replicas.storage_failed
        self.flusher = self.replicas.flusher
        self.host = SnapshotHost(self)
        self.logs: LogManager
        self.on_reconfigured: list[Callable[[], object]] = []
        """Called after the broker's configuration has changed."""
        self._on_all_failed = on_all_failed
        self._files = files
        self._log_files_max = log_files_max
        self._topics: Topics | None = None
        self._configs: Configs | None = None
        self._coordinators: Coordinators | None = None
        self.pipeline = Pipeline(
            self,
            monotonic=clock.monotonic,
            counters=self.counters,
            admission=self.admission,
            authorizer=AllowAll(),
            quotas=NO_QUOTAS,
        )

    # Start and stop

    def start(self, *, adopt: bool = False) -> None:
        """Open everything. WorldError says what stands in the way; then nothing is open."""
        now_ms = self.clock.time_ms()
        self.registry.start(cluster_id=self._cluster_to_join() if adopt else None)
        snapshot = self.metadata
        if snapshot.broker_configs:
            self.configs.load()
            self._configure()
        self.logs = LogManager(
            self._files,
            self.directories,
            self.topic_settings.of({}).log,
            broker_id=self.broker_id,
            cluster_id=snapshot.cluster_id,
            random_bytes=self.random_bytes,
            topic_config=lambda topic: self.host.settings_of(topic).log if topic in self.metadata.topics else None,
            background=self.background,
            on_offline=self.replicas.directory_offline,
            on_all_failed=self._on_all_failed,
            monotonic=self.clock.monotonic,
            cache=SegmentCache(self._files, open_files_max=self._log_files_max),
            producers_max=lambda: self.config.int("producer.ids.max"),
            epoch_given=lambda producer_id: None if self._coordinators is None else self._coordinators.epoch_of(producer_id),
        )
        self.replicas.logs = self.logs
        self.logs.start(now_ms, adopt=adopt)
        try:
            if adopt:
                self._register_adopted()
            deleted = self._finish_deletions(now_ms)
            self._catch_up_with_logs()
            self._lead()
            if self._coordinators is not None:
                drain(self._coordinators.topics_deleted(deleted))
            if adopt:
                self._pass_over_producers(partition.log for partition in self.partitions)
        except BaseException:
            self.logs.shutdown()
            raise
        self.housekeeping.start()

    def stop(self, background: "Background", is_late: Callable[[], bool]) -> Steps:
        """Answer what waits; the steps flush and close the logs, as many as there is time for, and must come to their end."""
        self.housekeeping.stop()
        self.slices.close()
        if self._coordinators is not None:
            self._coordinators.close()
        self.delayed.close()
        self.replicas.close()
        return self.logs.shutting_down(background, is_late)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {
            "connections": len(self.connections),
            "partitions_led": len(self.partitions),
            "requests_delayed": self.delayed.waiting,
            **self.admission.statistics(),
            **(self._coordinators.statistics() if self._coordinators is not None else {}),
            **self.logs.statistics(),
        }

    @property
    def topics(self) -> "Topics":
        """The life of topics; loaded when first asked for."""
        if self._topics is None:
            from moldau.broker.topics import Topics

            self._topics = Topics(self.registry, self.config, self.host)
        return self._topics

    @property
    def configs(self) -> "Configs":
        """Configurations that change at run time; loaded when first asked for."""
        if self._configs is None:
            from moldau.broker.configs import Configs

            self._configs = Configs(self.registry, self.config, self.host, self.broker_id)
        return self._configs

    @property
    def coordinators(self) -> "Coordinators":
        """The coordinators and their topics; loaded when first asked for."""
        if self._coordinators is None:
            from moldau.broker.coordinators.coordinators import Coordinators

            self._coordinators = Coordinators(self)
        return self._coordinators

    @property
    def coordinators_if_any(self) -> "Coordinators | None":
        """The same, None if nothing has asked for it."""
        return self._coordinators

    @property
    def groups(self) -> "GroupCoordinator":
        """The coordinator of groups."""
        return self.coordinators.groups

    @property
    def transactions(self) -> "TransactionCoordinator":
        """The coordinator of transactions."""
        return self.coordinators.transactions

    # Connections

    def accept(self, transport: "Transport", listener: str) -> Connection:
        """The receiver of a new connection, which came in by a listener."""
        connection = Connection(self, transport, listener)
        self.connections[connection] = None
        return connection

    def advertised_to(self, listener: str, local: tuple[str, int]) -> Endpoint:
        """Address of this broker for a client that came in by `listener`, connecting to `local`."""
        return self.advertised.get(listener) or Endpoint(listener, *local)

    def finish_connections(self) -> None:
        """Take no more requests; each connection closes once its answers have left. Members of groups that wait are answered."""
        if self._coordinators is not None:
            self._coordinators.close()
        self.slices.run(self._finish_connections(), _report)

    def _finish_connections(self) -> Steps:
        for connection in list(self.connections):
            connection.finish()
            yield UNFINISHED

    @property
    def metadata(self) -> "MetadataSnapshot":
        """The cluster as requests see it."""
        return self.registry.snapshot

    def reconfigured(self) -> None:
        """The broker's configuration has changed."""
        self._configure()
        for listener in self.on_reconfigured:
            listener()

    def _cluster_to_join(self) -> str | None:
        from moldau.log.adopt import cluster_id_of

        return cluster_id_of(self._files, self.directories)

    def _register_adopted(self) -> None:
        found = [topic for topic in self.logs.adopt_topics() if topic.name not in self.metadata.topics]
        if found:
            drain(
                self.registry.create_topics(
                    [
                        NewTopic(topic.name, topic.topic_id, [[self.broker_id]] * topic.partitions, topic.configs, topic.first_epochs)
                        for topic in found
                    ]
                )
            )

    def _pass_over_producers(self, logs: "Iterable[PartitionLog]") -> None:
        """Give no producer an id that another one has in these logs."""
        used = [producer.producer_id for log in logs for producer in log.active_producers()]
        if used:
            self.producer_ids.pass_over(max(used))

    def _catch_up_with_logs(self) -> None:
        """A metadata store that was restored from a backup may know less than the logs. Epochs that were used are not used again: recovery
        would take what is appended for leftovers of an earlier leader, and cut it. Nor are producer ids."""
        stale = {}
        for topic_partition, log in self.logs.logs():
            topic = self.metadata.topics.get(topic_partition.topic)
            if topic is None:
                _LOG.warning("folder of an unknown topic is kept and not served: path=%s", log.directory)
            elif topic_partition.partition < len(topic.partitions):
                known = topic.partitions[topic_partition.partition].leader_epoch
                if log.latest_epoch > known:
                    stale[topic_partition] = log.latest_epoch + 1
        if stale:
            _LOG.warning(
                "metadata store is older than the logs, as a restored one is: partitions=%d; their leader epochs are raised", len(stale)
            )
            self.registry.raise_epochs(stale)
            self._pass_over_producers(log for _, log in self.logs.logs())

    def _finish_deletions(self, now_ms: int) -> list[str]:
        """Deletions that the last stop interrupted between their mark and their end: of these topics."""
        topics = sorted(self.registry.deleting)
        if topics:
            self.logs.delete([each for each in self.logs.partitions() if each.topic in topics], now_ms)
            drain(self.registry.finish_deletion(topics))
        return topics

    def _lead(self) -> None:
        for topic in self.metadata.topics.values():
            for index, info in enumerate(topic.partitions):
                if info.leader == self.broker_id:
                    self.host.try_open(TopicPartition(topic.name, index))

    def _configure(self) -> None:
        self.admission.configure(self.config)
        self.delayed.requests_max = self.config.int("delayed.requests.max")
