"""The families of partitions and their logs, and how many partitions are not as they should be."""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from moldau.broker.metrics.families import Family, gauge
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause

if TYPE_CHECKING:
    from moldau.broker.replicas.table import PartitionTable
    from moldau.cluster.snapshot import MetadataSnapshot

PARTITIONS_AT_ONCE = 100
_LOG = "kafka_log_log_"
_REPLICAS = "kafka_server_replicamanager_"
_PARTITION = ("topic", "partition")


def collect_partitions(
    table: "PartitionTable", metadata: "MetadataSnapshot", broker_id: int, log_numbers: Mapping[str, int]
) -> Generator[Pause, None, list[Family]]:
    """Sizes and offsets of each log, in steps; each partition's new records are counted for its topic on the way.

    `log_numbers`: of :meth:`moldau.log.manager.LogManager.statistics`.
    """
    size = gauge(f"{_LOG}size", "Bytes of a log's segments.", *_PARTITION)
    end = gauge(f"{_LOG}logendoffset", "Log end offset.", *_PARTITION)
    start = gauge(f"{_LOG}logstartoffset", "Log start offset.", *_PARTITION)
    segments = gauge(f"{_LOG}numlogsegments", "Segments of a log.", *_PARTITION)
    under_replicated = under_min_isr = leaders = 0
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
            under_min_isr += len(info.isr) < partition.rules.min_insync_replicas
    offline = yield from _offline(table, metadata, broker_id)
    logs = log_numbers["partitions"] + log_numbers["partitions_offline"]
    counts = {
        "partitioncount": (logs, "Partitions that have a log here, offline ones included."),
        "leadercount": (leaders, "Partitions that this broker leads."),
        "underreplicatedpartitions": (under_replicated, "Led partitions whose replicas are not all in sync."),
        "underminisrpartitioncount": (under_min_isr, "Led partitions with fewer replicas in sync than min.insync.replicas."),
        "offlinereplicacount": (log_numbers["partitions_offline"], "Partitions whose log is offline."),
    }
    families = [size, end, start, segments]
    for name, (count, text) in counts.items():
        families.append(gauge(f"{_REPLICAS}{name}", text))
        families[-1].add(count)
    families.append(gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions of the cluster that no broker serves."))
    families[-1].add(offline)
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
