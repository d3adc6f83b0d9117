"""All metrics of a broker, read in steps: `collect` yields between pieces of well below a millisecond, and gives values only.

Names are those that jmx_exporter's usual rules give to Kafka's metrics (lower case, ``PerSec`` becomes ``_total``); ours begin with
``moldau_``. docs/metrics.md describes all of them.
"""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.broker.metrics.families import Family, counter, gauge, request_families, topic_families
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause

if TYPE_CHECKING:
    from collections.abc import Collection

    from moldau.broker.admission.admission import Admission
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.handlers.fetch.sessions import FetchSessions
    from moldau.broker.local_coordinators import Coordinators
    from moldau.broker.metrics.counters import Counters
    from moldau.broker.replicas.hosted import PartitionTable
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.replicas.purgatory import Purgatory
    from moldau.broker.security import Channel
    from moldau.cluster.snapshot import MetadataSnapshot
    from moldau.log.manager import LogManager
    from moldau.ports.clock import Clock

GROUPS_AT_ONCE = 500
CONNECTIONS_AT_ONCE = 1000
PARTITIONS_AT_ONCE = 100
_LOG = "kafka_log_log_"
_SESSIONS = "kafka_server_fetchsessioncache_"
_REPLICAS = "kafka_server_replicamanager_"
_PARTITION = ("topic", "partition")


class MeasuredConnection(Protocol):
    """An open connection."""

    channel: "Channel"
    """Its listener is what counts."""


class Sources(Protocol):
    """The parts of a broker that have numbers."""

    @property
    def broker_id(self) -> int:
        """Its own number."""

    @property
    def clock(self) -> "Clock":
        """Its time."""

    @property
    def connections(self) -> "Collection[MeasuredConnection]":
        """Those that are open."""

    @property
    def connections_made(self) -> int:
        """How many there were since the start."""

    @property
    def coordinators_if_any(self) -> "Coordinators | None":
        """The coordinators, None if nothing has asked for them."""

    @property
    def counters(self) -> "Counters":
        """What was counted."""

    @property
    def purgatory(self) -> "Purgatory":
        """The purgatory."""

    @property
    def fetch_sessions(self) -> "FetchSessions":
        """The fetch sessions."""

    @property
    def logs(self) -> "LogManager":
        """All logs."""

    @property
    def metadata(self) -> "MetadataSnapshot":
        """The cluster."""

    @property
    def partitions(self) -> "PartitionTable":
        """Those that it leads."""

    @property
    def replicas(self) -> "ReplicaManager":
        """All replicas."""

    @property
    def admission(self) -> "Admission":
        """What peers take, and the bounds of it."""

    @property
    def slices(self) -> "SliceScheduler":
        """Work in turns."""


def collect(broker: Sources) -> Generator[Pause, None, list[Family]]:
    """All families, in steps."""
    log_numbers = broker.logs.statistics()
    yield None
    families = yield from _partitions(broker.partitions, broker.metadata, broker.broker_id, log_numbers)
    families += yield from topic_families(broker.counters)
    families += request_families(broker.counters, broker.clock.monotonic())
    yield None
    families += yield from _groups(broker.coordinators_if_any)
    families += _bounds(broker)
    families += yield from _broker(broker)
    families += _logs(log_numbers)
    families += _throttles(broker.replicas)
    return families


def not_ready(broker: Sources) -> list[str]:
    """Why the broker cannot serve every request yet; nothing if it can."""
    coordinators = broker.coordinators_if_any
    reasons = []
    if broker.broker_id not in broker.metadata.brokers:
        reasons.append("the broker is not registered")
    if coordinators is not None and coordinators.groups.loading:
        reasons.append("groups are loading")
    if coordinators is not None and coordinators.transactions_if_any is not None and coordinators.transactions_if_any.is_loading:
        reasons.append("transactions are loading")
    return reasons


def _partitions(
    table: "PartitionTable", metadata: "MetadataSnapshot", broker_id: int, log_numbers: Mapping[str, int]
) -> Generator[Pause, None, list[Family]]:
    """Sizes and offsets of each log, in steps; each partition's new records are counted for its topic on the way.

    `log_numbers`: of :meth:`moldau.log.manager.LogManager.statistics`.
    """
    size = gauge(f"{_LOG}size", "Bytes of a log's segments.", *_PARTITION)
    end = gauge(f"{_LOG}logendoffset", "Log end offset.", *_PARTITION)
    start = gauge(f"{_LOG}logstartoffset", "Log start offset.", *_PARTITION)
    segments = gauge(f"{_LOG}numlogsegments", "Segments of a log.", *_PARTITION)
    under_replicated = under_min_isr = at_min_isr = leaders = 0
    for number, partition in enumerate(table, 1):
        if number % PARTITIONS_AT_ONCE == 0:
            yield None
        if not partition.is_led:
            continue
        partition.count_messages()
        log, where = partition.log, partition.topic_partition
        labels = (where.topic, str(where.partition))
        size.add(log.size_bytes, *labels)
        end.add(log.log_end_offset, *labels)
        start.add(log.start_offset, *labels)
        segments.add(log.segment_count, *labels)
        leaders += 1
        topic = metadata.topics.get(where.topic)
        if topic is not None and where.partition < len(topic.partitions):
            info = topic.partitions[where.partition]
            under_replicated += len(info.isr) < len(info.replicas)
            under_min_isr += len(info.isr) < partition.machine.effective_minimum
            at_min_isr += len(info.isr) == partition.machine.effective_minimum
    offline = yield from _offline(table, metadata, broker_id)
    logs = log_numbers["partitions"] + log_numbers["partitions_offline"]
    counts = {
        "partitioncount": (logs, "Partitions that have a log here, offline ones included."),
        "leadercount": (leaders, "Partitions that this broker leads."),
        "underreplicatedpartitions": (under_replicated, "Led partitions whose replicas are not all in sync."),
        "underminisrpartitioncount": (under_min_isr, "Led partitions with fewer replicas in sync than min.insync.replicas."),
        "atminisrpartitioncount": (at_min_isr, "Led partitions with as many replicas in sync as min.insync.replicas, and no more."),
        "offlinereplicacount": (log_numbers["partitions_offline"], "Partitions whose log is offline."),
    }
    families = [size, end, start, segments]
    for name, (count, text) in counts.items():
        families.append(gauge(f"{_REPLICAS}{name}", text))
        families[-1].add(count)
    families.append(gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions of the cluster that no broker serves."))
    families[-1].add(offline)
    return families


def _throttles(replicas: "ReplicaManager") -> list[Family]:
    replication = replicas.replication_if_any
    rates = (0.0, 0.0)
    if replication is not None:
        rates = replication.leader_throttle.bytes_per_second, replication.follower_throttle.bytes_per_second
    texts = ("Bytes per second of throttled replicas sent to followers.", "Bytes per second of throttled replicas fetched.")
    families = [gauge(f"kafka_server_{side}replication_byte_rate", text) for side, text in zip(("leader", "follower"), texts, strict=True)]
    for family, rate in zip(families, rates, strict=True):
        family.add(rate)
    return families


def _offline(table: "PartitionTable", metadata: "MetadataSnapshot", broker_id: int) -> Generator[Pause, None, int]:
    """How many partitions have no leader, or have this broker as their leader and are not open here."""
    offline = number = 0
    for topic in list(metadata.topics.values()):
        for info in topic.partitions:
            number += 1
            if number % PARTITIONS_AT_ONCE == 0:
                yield None
            if info.leader < 0 or (info.leader == broker_id and table.get(TopicPartition(topic.name, info.partition)) is None):
                offline += 1
    return offline


def _broker(broker: Sources) -> Generator[Pause, None, list[Family]]:
    purgatory = gauge("kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait in the purgatory.", "delayedoperation")
    purgatory.add(broker.purgatory.waiting, "Fetch")
    connections = gauge("kafka_server_socketservermetrics_connection_count", "Open connections.", "listener")
    own = broker.metadata.brokers.get(broker.broker_id)
    by_listener = {endpoint.listener: 0 for endpoint in (own.endpoints if own is not None else ())}
    for number, connection in enumerate(list(broker.connections)):
        by_listener[connection.channel.listener] = by_listener.get(connection.channel.listener, 0) + 1
        if number % CONNECTIONS_AT_ONCE == 0:
            yield None
    for listener, count in by_listener.items():
        connections.add(count, listener)
    accepted = counter("moldau_connections_accepted", "Connections accepted since the start.")
    accepted.add(broker.connections_made)
    slices = gauge("moldau_slices_running", "Long requests and other work that run in turns.")
    slices.add(broker.slices.running)
    controller = gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 if this broker is the controller.")
    controller.add(broker.metadata.controller_id == broker.broker_id)
    return [purgatory, connections, accepted, slices, controller, *_fetch_sessions(broker.fetch_sessions)]


def _fetch_sessions(sessions: "FetchSessions") -> list[Family]:
    evictions = counter(f"{_SESSIONS}incrementalfetchsessionevictions", "Fetch sessions that were evicted to make room for others.")
    evictions.add(sessions.evictions)
    return [
        _one(gauge(f"{_SESSIONS}numincrementalfetchsessions", "Fetch sessions of consumers and followers."), len(sessions)),
        _one(gauge(f"{_SESSIONS}numincrementalfetchpartitionscached", "Partitions of these sessions."), sessions.partitions),
        evictions,
    ]


def _groups(coordinators: "Coordinators | None") -> Generator[Pause, None, list[Family]]:
    groups = offsets = 0
    loading = 0 if coordinators is None else coordinators.groups.loading
    for partition in [] if coordinators is None else coordinators.groups.partitions():
        found = list(partition.groups.values())
        groups += len(found)
        for start in range(0, len(found), GROUPS_AT_ONCE):
            offsets += sum(len(group.offsets) for group in found[start : start + GROUPS_AT_ONCE])
            yield None
    transactions = None if coordinators is None else coordinators.transactions_if_any
    numbers = {} if transactions is None else transactions.statistics()
    return [
        _one(gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups that this broker coordinates."), groups),
        _one(gauge("kafka_coordinator_group_groupmetadatamanager_numoffsets", "Committed offsets of these groups."), offsets),
        _one(gauge("moldau_group_partitions_loading", "Partitions of __consumer_offsets that are being read."), loading),
        _one(gauge("moldau_transactional_ids", "Transactional ids that this broker coordinates."), numbers.get("transactional_ids", 0)),
        _one(gauge("moldau_transactions_open", "Transactions that are ongoing or being ended."), numbers.get("transactions_open", 0)),
        _one(
            counter("moldau_transactions_retried", "Writes of transaction state that were retried."),
            numbers.get("transactions_tried_again", 0),
        ),
    ]


def _bounds(broker: Sources) -> list[Family]:
    held = gauge("moldau_budget_held", "What clients make the broker hold, in the unit of the setting that bounds it.", "setting")
    limit = gauge("moldau_budget_limit", "The value of the setting; absent where there is no bound.", "setting")
    refusals = counter("moldau_budget_refusals", "Requests and connections refused or closed at the bound.", "setting")
    for budget in broker.admission.state:
        held.add(budget.held, budget.setting)
        limit.add(budget.limit, budget.setting)
        refusals.add(budget.refusals, budget.setting)
    memory = broker.admission.memory
    held.add(memory.held, "queued.max.request.bytes")
    if memory.is_bounded:
        limit.add(memory.bytes_max, "queued.max.request.bytes")
    refusals.add(memory.cut, "queued.max.request.bytes")
    quota = broker.admission.connections
    held.add(quota.held, "max.connections")
    limit.add(quota.limit, "max.connections")
    refusals.add(quota.refused, "max.connections")
    limit.add(broker.admission.limits.fetches_waiting_max, "delayed.requests.max")
    held.add(broker.purgatory.held, "delayed.requests.max")
    waiting = gauge("moldau_connections_waiting_for_memory", "Connections that are not read until there is memory for requests.")
    waiting.add(memory.waiting)
    return [held, limit, refusals, waiting]


def _logs(numbers: dict[str, int]) -> list[Family]:
    """Of :meth:`moldau.log.manager.LogManager.statistics`; without a cleaner its numbers are 0."""
    gauges = {
        "moldau_log_directories": ("directories", "Log directories."),
        "moldau_log_directories_offline": ("directories_offline", "Log directories that failed."),
        "moldau_log_removals_waiting": ("removals_waiting", "Deleted segments and folders whose files are removed later."),
        "moldau_log_open_files": ("open_files", "Segment files that are kept open."),
        "moldau_log_index_bytes": ("index_bytes", "Memory of cached indexes."),
        "moldau_log_producer_ids": ("producer_ids", "Idempotent producers that all logs remember."),
        "kafka_log_logcleanermanager_uncleanable_partitions_count": (
            "compaction_uncleanable",
            "Logs whose compaction ended with an error.",
        ),
        "kafka_log_logcleanermanager_max_dirty_percent": ("compaction_dirtiest_percent", "Dirty share of the dirtiest log, in percent."),
        "moldau_cleaner_passes_running": ("compaction_running", "Passes of compaction that run."),
    }
    counters = {
        "moldau_log_producer_ids_evicted": ("producer_ids_evicted", "Idle producers evicted at producer.ids.max."),
        "moldau_log_producer_ids_refused": ("producer_ids_refused", "Producers refused at producer.ids.max."),
        "moldau_cleaner_passes": ("compaction_passes", "Passes of compaction that ended."),
        "moldau_cleaner_passes_failed": ("compaction_passes_failed", "Passes of compaction that failed."),
        "moldau_cleaner_bytes_read": ("compaction_bytes_read", "Bytes that compaction read."),
        "moldau_cleaner_bytes_written": ("compaction_bytes_written", "Bytes that compaction wrote."),
        "moldau_cleaner_records_read": ("compaction_records_read", "Records that compaction read."),
        "moldau_cleaner_records_removed": ("compaction_records_removed", "Records that compaction removed."),
    }
    last_pass = gauge("moldau_cleaner_last_pass_seconds", "Duration of the last pass of compaction.")
    return [
        *(_one(gauge(name, text), numbers.get(key, 0)) for name, (key, text) in gauges.items()),
        _one(last_pass, numbers.get("compaction_last_pass_ms", 0) / 1000),
        *(_one(counter(name, text), numbers.get(key, 0)) for name, (key, text) in counters.items()),
    ]


def _one(family: Family, value: float) -> Family:
    family.add(value)
    return family
