"""The broker: the parts of one process that serves partitions, put together.

Order of start: the configurations in the metadata store, the logs, the registration, the partitions that the controller says. Order of
stop: connections finish, waiting requests are answered, logs are flushed and closed; the session with the store is ended after
that, by the code that began it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.admin_log import AdminLog
from moldau.broker.admission.admission import Admission
from moldau.broker.api.pipeline import Pipeline
from moldau.broker.handlers.produce.walks import BatchWalks
from moldau.broker.metadata.applier import MetadataApplier
from moldau.broker.metadata.membership import ClusterMembership
from moldau.broker.metrics.counters import Counters
from moldau.broker.network.connection import Connection
from moldau.broker.quotas import NO_QUOTAS
from moldau.broker.replicas.housekeeping import HousekeepingTimers
from moldau.broker.replicas.manager import ReplicaManager
from moldau.broker.replicas.purgatory import Purgatory
from moldau.broker.replicas.rules import SettingsCache
from moldau.broker.security import AllowAll, Channel
from moldau.cluster.producer_ids import ProducerIds
from moldau.cluster.snapshot import BrokerInfo, Endpoint, MetadataCache
from moldau.cluster.store import MetadataStore
from moldau.log.cache import OPEN_FILES_MAX, SegmentCache
from moldau.log.manager import LogManager
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import CoordinationError, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps
from moldau.protocol.framing import ReceiveBuffer

if TYPE_CHECKING:
    from moldau.broker.configs import Configs
    from moldau.broker.groups.coordinator import GroupCoordinator
    from moldau.broker.handlers.fetch.sessions import FetchSessions
    from moldau.broker.local_coordinators import Coordinators
    from moldau.broker.metadata.admin import ClusterAdmin
    from moldau.broker.metadata.mirror_epochs import MirrorEpochs
    from moldau.broker.peers.connection import PeerConnection
    from moldau.broker.peers.connections import PeerConnections
    from moldau.broker.replicas.replication import Replication
    from moldau.broker.transactions.coordinator import TransactionCoordinator
    from moldau.cluster.queries import ConfigNodes
    from moldau.cluster.snapshot import MetadataSnapshot
    from moldau.log.adopt import AdoptedTopic
    from moldau.log.config import LogConfig
    from moldau.log.log_set import AllFailedListener
    from moldau.log.partition_log import PartitionLog
    from moldau.ports.background import Background, Workers
    from moldau.ports.clock import Clock
    from moldau.ports.coordination import Coordination
    from moldau.ports.filesystem import FileSystem
    from moldau.ports.transport import Network, Transport

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
        coordination: "Coordination",
        network: "Callable[[], Network]",
        random_bytes: Callable[[int], bytes],
        workers: "Callable[[], Workers] | None" = None,
        end_earlier_session: Callable[[bool, Callable[[], object]], object] | None = None,
        log_files_max: int = OPEN_FILES_MAX,
        on_all_failed: "AllFailedListener" = lambda _failure: None,
    ) -> None:
        """`background` has a few threads for calls that wait for the disk; `compute` one for work that takes the processor (and with it the
        interpreter's lock, which more threads would take from this one more often), `recompress` one for compressing, which needs no lock
        and takes long; without them that is `background`.

        `network` gives what opens connections to other brokers, once there are some. `workers` gives those for work that burns a processor,
        once there is some; without them nothing is compacted.

        `end_earlier_session` is called with the log directories locked, and whether all were stopped cleanly: it ends what the process
        before has left in the coordination tree, and then calls back.

        `log_files_max`: files of segments that are kept open, of all logs together.

        `on_all_failed` is called when the last log directory fails: there is nothing left to serve.
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
        self._network = network
        self._end_earlier_session = end_earlier_session
        self.advertised: Mapping[str, Endpoint] = {}
        """Advertised addresses by listener; a client of one that is missing receives the address that it connected to."""
        self.receive_buffer = ReceiveBuffer(is_short=lambda: self.request_memory.exhausted)
        self.connections: dict[Connection, None] = {}
        self.connections_made = 0
        self.counters = Counters(clock.monotonic)
        self.cache = MetadataCache()
        self.topic_settings = SettingsCache(config)
        self.admission = Admission(clock, config)
        self.request_memory = self.admission.memory
        self.batch_walks = BatchWalks(clock, self.request_memory, self.compute, recompress or background)
        self.store = store = MetadataStore(coordination)
        self.producer_ids = ProducerIds(store, self.broker_id, random_bytes)
        self.slices = self.admission.slices
        self.purgatory = Purgatory(clock)
        self.housekeeping = HousekeepingTimers(self)
        self.replicas = ReplicaManager(
            self.broker_id,
            clock=clock,
            background=background,
            metadata=self.cache,
            purgatory=self.purgatory,
            counters=self.counters,
            listener=lambda: self.coordinators,
            flush_interval=self.housekeeping.hurry,
            replication=self._make_replication,
        )
        self.partitions = self.replicas.partitions
        self.partitions_of = self.partitions.of_topic
        self.missing_partition = self.replicas.missing
        self.storage_failed = self.replicas.storage_failed
        self.flusher = self.replicas.flusher
        self.applier = MetadataApplier(
            self.broker_id, self.cache, store, self.replicas, self.topic_settings, self.slices, clock, self._topics_deleted
        )
        self.membership = ClusterMembership(
            config,
            store,
            self.cache,
            clock=clock,
            slices=self.slices,
            random_bytes=random_bytes,
            reconfigured=self.reconfigured,
            raised_epochs=self._raised_epochs,
            connect=self.connect,
        )
        self.logs: LogManager
        self.on_reconfigured: list[Callable[[], object]] = []
        """Called after the broker's configuration has changed."""
        self._started: Callable[[WorldError | None], object]
        self._first_configs: Mapping[str, Mapping[str, str]] = {}
        """What topics set themselves, until the topics are known."""
        self._are_logs_open = False
        self._on_all_failed = on_all_failed
        self._files = files
        self._log_files_max = log_files_max
        self._admin: ClusterAdmin | None = None
        self._configs: Configs | None = None
        self._coordinators: Coordinators | None = None
        self._fetch_sessions: FetchSessions | None = None
        self._peers: PeerConnections | None = None
        self._mirror_epochs: MirrorEpochs | None = None
        self.pipeline = Pipeline(
            self,
            monotonic=clock.monotonic,
            counters=self.counters,
            admission=self.admission,
            authorizer=AllowAll(),
            quotas=NO_QUOTAS,
        )

    # Start and stop

    def start(self, info: BrokerInfo, started: Callable[[WorldError | None], object] = lambda _error: None, *, adopt: bool = False) -> None:
        """Open everything, register as `info`, and lead what the controller says; then `started` is called.

        WorldError says what stands in the way; then nothing is open. It is raised if that is known when this returns, and otherwise what
        `started` is called with. With a store in this process, all is done when this returns.
        """
        outcomes: list[WorldError | None] = []
        self._started = outcomes.append
        try:
            self.membership.read(info, self._cluster_to_join() if adopt else None, partial(self._open_logs, info, adopt))
        except BaseException:
            self.abandon_start()
            raise
        if outcomes and outcomes[0] is not None:
            raise outcomes[0]
        if outcomes:
            started(None)
        else:
            self._started = started

    def _open_logs(self, info: BrokerInfo, adopt: bool, found: "ConfigNodes | CoordinationError") -> None:
        """The configurations are known: open the logs, and join the cluster."""
        if isinstance(found, CoordinationError):
            self._started(found)
            return
        if found.brokers:
            self.admission.configure(self.config)
        self._first_configs = found.topics
        self.logs = self.replicas.logs = LogManager(
            self._files,
            self.directories,
            self.topic_settings.of({}).log,
            broker_id=self.broker_id,
            cluster_id=self.metadata.cluster_id,
            random_bytes=self.random_bytes,
            topic_config=self._log_config,
            background=self.background,
            on_offline=self.replicas.directory_offline,
            on_all_failed=self._on_all_failed,
            monotonic=self.clock.monotonic,
            cache=SegmentCache(self._files, open_files_max=self._log_files_max),
            producers_max=lambda: self.config.int("producer.ids.max"),
            epoch_given=lambda producer_id: None if self._coordinators is None else self._coordinators.epoch_of(producer_id),
        )
        try:
            self.logs.start(self.clock.time_ms(), adopt=adopt)
        except WorldError as error:
            self._started(error)
            return
        self._are_logs_open = True
        try:
            adopted = self.logs.adopt_topics() if adopt else []
        except WorldError as error:
            self._fail_start(error)
            return
        epochs = {topic_partition: log.latest_epoch for topic_partition, log in self.logs.logs() if log.latest_epoch > 0}
        epochs |= {TopicPartition(topic.name, index): epoch - 1 for topic in adopted for index, epoch in topic.first_epochs.items()}
        join = partial(self.membership.join, info, self.applier, self.logs, epochs, partial(self._joined, adopted))
        if self._end_earlier_session is None:
            join()
        else:
            self._end_earlier_session(bool(self.logs.clean_epochs()), join)

    def _log_config(self, topic: str) -> "LogConfig | None":
        """What the logs of a topic obey; None for one that is not known."""
        if topic in self._first_configs:
            return self.topic_settings.of(self._first_configs[topic]).log
        return self.topic_settings.of(self.cache.config_of(topic)).log if topic in self.metadata.topics else None

    def _joined(self, adopted: "Sequence[AdoptedTopic]", error: CoordinationError | None) -> None:
        """All partitions of this broker are open."""
        self._first_configs = {}
        new = [topic for topic in adopted if topic.name not in self.metadata.topics]
        if error is not None:
            self._fail_start(error)
        elif new:
            from moldau.broker.metadata.admin import adoption_of

            self.membership.ask(adoption_of(new, self.broker_id), self._adopted)
        elif adopted:
            self._adopted({})
        else:
            self._end_start()

    def _adopted(self, outcomes: object) -> None:
        """The topics of adopted logs are created, or have each an error."""
        errors = [each for each in outcomes.values() if isinstance(each, PeerError)] if isinstance(outcomes, dict) else [outcomes]
        if errors:
            self._fail_start(CoordinationError(f"topics not adopted: {errors[0]}", retriable=False))
            return
        self._pass_over_producers((partition.log for partition in self.partitions), self._passed_over)

    def _passed_over(self, error: CoordinationError | None) -> None:
        if error is not None:
            self._fail_start(error)
        else:
            self._end_start()

    def _fail_start(self, error: WorldError) -> None:
        self.abandon_start()
        self._started(error)

    def abandon_start(self) -> None:
        """Close the logs in order, if a start that came to nothing, or is given up, has opened them."""
        if self._are_logs_open:
            self._are_logs_open = False
            self.logs.shutdown()

    def _end_start(self) -> None:
        for topic_partition, log in self.logs.logs():
            if self.metadata.brokers and topic_partition.topic not in self.metadata.topics:
                _LOG.warning("folder of an unknown topic is kept and not served: path=%s", log.directory)
        self.housekeeping.start()
        self.membership.serve()
        self._started(None)

    def _topics_deleted(self, names: Sequence[str], done: Callable[[], object]) -> None:
        """Drop what is kept of deleted topics, and call `done` then."""
        self.counters.forget_topics(names)
        if self._coordinators is None:
            done()
        else:
            self._coordinators.topics_deleted(names, done)

    def _raised_epochs(self, partitions: int) -> None:
        """The metadata store knows less than the logs. Neither leader epochs nor producer ids are used twice: recovery would take what is
        appended for leftovers of an earlier leader, and cut it.
        """
        _LOG.warning(
            "metadata store is older than the logs, as a restored one is: partitions=%d; their leader epochs are raised", partitions
        )
        self._pass_over_producers((log for _, log in self.logs.logs()), lambda _error: None)

    def stop(self, background: "Background", is_late: Callable[[], bool]) -> Steps:
        """Answer what waits; the steps flush and close the logs, as many as there is time for, and must come to their end."""
        self.housekeeping.stop()
        self.membership.stop()
        self.slices.close()
        if self._coordinators is not None:
            self._coordinators.close()
        self.purgatory.close()
        self.replicas.close()
        return self.logs.shutting_down(background, is_late)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {
            "connections": len(self.connections),
            "partitions_led": len(self.partitions),
            "requests_delayed": self.purgatory.waiting,
            **self.admission.statistics(),
            **(self._coordinators.statistics() if self._coordinators is not None else {}),
            **self.logs.statistics(),
        }

    @property
    def admin(self) -> "ClusterAdmin":
        """Submits changes to the controller; loaded when first asked for."""
        if self._admin is None:
            from moldau.broker.metadata.admin import ClusterAdmin

            self._admin = ClusterAdmin(self.membership, self.config, self.replicas, self.clock)
        return self._admin

    @property
    def configs(self) -> "Configs":
        """Configurations that change at run time; loaded when first asked for."""
        if self._configs is None:
            from moldau.broker.configs import Configs

            self._configs = Configs(self.cache, self.config, self.admin, self.broker_id)
        return self._configs

    @property
    def fetch_sessions(self) -> "FetchSessions":
        """The fetch sessions of clients and followers; loaded with the first one."""
        if self._fetch_sessions is None:
            from moldau.broker.handlers.fetch.sessions import PARTITIONS, FetchSessions

            budget = self.admission.state.of(PARTITIONS)
            self._fetch_sessions = FetchSessions(self.config, budget, self.clock.monotonic, self.random_bytes)
        return self._fetch_sessions

    @property
    def mirror_epochs(self) -> "MirrorEpochs":
        """Keeps leader epochs of mirrors above those of their sources; loaded with the first request of a mirror."""
        if self._mirror_epochs is None:
            from moldau.broker.metadata.mirror_epochs import MirrorEpochs

            self._mirror_epochs = MirrorEpochs(self.membership, self.clock, self.replicas.partitions.get)
        return self._mirror_epochs

    def _make_replication(self) -> "Replication":
        """What there is for partitions with other replicas; loaded with the first one."""
        from moldau.broker.replicas.replication import Replication

        return Replication(self)

    @property
    def coordinators(self) -> "Coordinators":
        """The coordinators and their topics; loaded when first asked for."""
        if self._coordinators is None:
            from moldau.broker.local_coordinators import Coordinators

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

    def connect(self, broker: BrokerInfo, purpose: str, *, in_flight_max: int = 1, frame_bytes_max: int | None = None) -> "PeerConnection":
        """See :meth:`moldau.broker.peers.connections.PeerConnections.connect`; loaded when first asked for."""
        if self._peers is None:
            from moldau.broker.peers.connections import PeerConnections

            self._peers = PeerConnections(self.broker_id, self._network(), self.clock, self.random_bytes)
        return self._peers.connect(broker, purpose, in_flight_max=in_flight_max, frame_bytes_max=frame_bytes_max)

    def accept(self, transport: "Transport", listener: str) -> Connection:
        """The receiver of a new connection, which came in by a listener."""
        self.connections_made += 1
        advertised = self.advertised.get(listener) or Endpoint(listener, *transport.local)
        channel = Channel(listener, transport.peer, advertised, self.connections_made)
        if self.cache.is_complete:
            connection = Connection(self, transport, channel)
        else:
            from moldau.broker.network.early_connection import EarlyConnection

            connection = EarlyConnection(self, transport, channel)
        self.connections[connection] = None
        return connection

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
        return self.cache.snapshot

    def departed_brokers(self) -> "list[BrokerInfo]":
        """Those that were live until a few seconds ago."""
        return self.cache.departed(self.clock.monotonic())

    def reconfigured(self) -> None:
        """The broker's configuration has changed."""
        self.admission.configure(self.config)
        for listener in self.on_reconfigured:
            listener()

    def _cluster_to_join(self) -> str | None:
        from moldau.log.adopt import cluster_id_of

        return cluster_id_of(self._files, self.directories)

    def _pass_over_producers(self, logs: "Iterable[PartitionLog]", done: Callable[[CoordinationError | None], object]) -> None:
        """Give no producer an id that another one has in these logs; `done` when the store knows."""
        used = [producer.producer_id for log in logs for producer in log.active_producers()]
        if used:
            self.producer_ids.pass_over(max(used), done)
        else:
            done(None)
