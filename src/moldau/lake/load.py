"""A load: what a topic holds beyond what the table holds, into the table, once.

The order is everything. 1. Read from the table how far each partition has been loaded, and from the brokers how far it reaches: the
range is fixed. 2. Tasks read it through our data source, parse the events and write Parquet files; they report the files, nothing else
comes to the driver. 3. One commit of the dead-letter table. 4. One commit of the table: its files and the new offsets. 5. If the job has
a group, a commit of the table's offsets to it, for people to see the lag.

A load that dies before 4 has changed nothing that a reader of the table can see; the next one starts from the same offsets. If it died
between 3 and 4, the next one meets the same dead letters again and leaves out those that the dead-letter table has the offsets of. If
5 was not reached, or failed, the next one does it, whether or not there is anything to load: nothing is ever read from the group.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from moldau.lake.cluster_log import ClusterLog
from moldau.lake.data_files import DAY, DataFile
from moldau.lake.load_job import ACTIONS, DEAD_LETTER_COLUMNS, DEAD_LETTERS, EVENTS, LoadJob
from moldau.lake.offsets import EARLIEST, LATEST, OffsetRange, format_offsets, plan_ranges
from moldau.lake.options import ISOLATION_LEVELS
from moldau.lake.table import LoadConflictError, Progress, application_id, commit, open_or_create, open_table, progress
from moldau.model.errors import MoldauError
from moldau.model.identity import Offset, TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one load will do: fixed ranges, and what the tables say before it."""

    ranges: tuple[OffsetRange, ...]
    topic_id: str
    before: tuple[Progress, ...]
    dead_before: tuple[Progress, ...]
    after: Mapping[str, int]
    group_offsets: Mapping[TopicPartition, int]
    """What the table says after the load, by partition."""
    version: int
    """Of the table before the load."""


@dataclass(frozen=True, slots=True)
class Written:
    """Files that tasks have written and nobody knows yet."""

    events: tuple[DataFile, ...]
    dead_letters: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load did; `version` is the table's, whether or not it changed."""

    rows: int
    dead_letters: int
    files: int
    bytes: int
    version: int
    ranges: tuple[OffsetRange, ...]
    seconds: float
    group_error: str | None = None
    """Why the offsets are not in the group, if they are not; the next load commits them."""


def load(spark: Any, job: LoadJob, *, fail_on_data_loss: bool = True) -> LoadResult:
    """Bring the table up to the end of the topic. LoadConflictError if another load of the job was faster; nothing is changed then.

    DataLossError if records between the table and the topic's first offset are gone; `fail_on_data_loss` off goes on without them.
    """
    begun = time.monotonic()
    planned = plan_load(job, fail_on_data_loss=fail_on_data_loss)
    if not planned.ranges:
        group_error = commit_group(job, planned)
        return LoadResult(0, 0, 0, 0, planned.version, (), time.monotonic() - begun, group_error)
    written = write_files(spark, job, planned)
    commit_dead_letters(job, planned, written)
    version = commit_events(job, planned, written)
    group_error = commit_group(job, planned)
    return LoadResult(
        rows=sum(file.rows for file in written.events),
        dead_letters=sum(file.rows for file in written.dead_letters),
        files=len(written.events),
        bytes=sum(file.size for file in written.events),
        version=version,
        ranges=planned.ranges,
        seconds=time.monotonic() - begun,
        group_error=group_error,
    )


def plan_load(job: LoadJob, *, fail_on_data_loss: bool = True) -> Plan:
    """Step 1. Makes the table if it is missing."""
    table = open_or_create(job.table, job.table_schema, f"events of topic {job.topic}")
    with ClusterLog(job.bootstrap, f"moldau-load-{job.name}", isolation_level=ISOLATION_LEVELS[job.isolation_level]) as source:
        topic_id = source.topic_id(job.topic)
        partitions = [TopicPartition(job.topic, number) for number in range(source.partition_counts([job.topic])[job.topic])]
        firsts = source.offsets(dict.fromkeys(partitions, EARLIEST))
        lasts = source.offsets(dict.fromkeys(partitions, LATEST))
    ids = {partition: application_id(job.name, topic_id, partition.partition) for partition in partitions}
    before = progress(table, list(ids.values()))
    starts = {
        partition: firsts[partition] if known.offset is None else known.offset for partition, known in zip(partitions, before, strict=True)
    }
    ranges = plan_ranges(starts, lasts, firsts, lasts, fail_on_data_loss=fail_on_data_loss)
    return Plan(
        ranges=tuple(ranges),
        topic_id=topic_id,
        before=tuple(before),
        dead_before=tuple(progress(open_table(job.dead_letters), list(ids.values()))),
        after={ids[TopicPartition(job.topic, r.partition)]: r.end for r in ranges},
        group_offsets={
            **{partition: known.offset for partition, known in zip(partitions, before, strict=True) if known.offset is not None},
            **{TopicPartition(job.topic, r.partition): r.end for r in ranges},
        },
        version=table.version(),
    )


def write_files(spark: Any, job: LoadJob, planned: Plan) -> Written:
    """Step 2: Spark tasks write the files; their names come back."""
    from moldau.lake.load_task import write_batches

    ends = {TopicPartition(r.topic, r.partition): r.end for r in planned.ranges}
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "kafka.client.id": f"moldau-load-{job.name}",
        "assign": _assignment(planned.ranges),
        "startingOffsets": format_offsets({TopicPartition(r.topic, r.partition): r.start for r in planned.ranges}),
        "endingOffsets": format_offsets(ends),
        "includeHeaders": str(job.needs_headers).lower(),
        "isolationLevel": job.isolation_level,
    }
    if job.group_id is not None:
        options["groupId"] = job.group_id
    columns = "key binary, value binary, partition int, offset bigint, timestamp timestamp"
    if job.needs_headers:
        columns += ", headers array<struct<key:string,value:binary>>"
    dead_from = {r.partition: known.offset or 0 for r in planned.ranges for known in planned.dead_before if _is_of(known, r.partition)}
    task: Callable[[Iterator[Any]], Iterator[Any]] = partial(write_batches, job=job, dead_from=dead_from)
    records = spark.read.format("moldau").schema(columns).options(**options).load()
    writers = job.writers or spark.sparkContext.defaultParallelism
    rows = records.coalesce(writers).mapInArrow(task, ACTIONS).collect()
    by_target: dict[str, list[DataFile]] = {EVENTS: [], DEAD_LETTERS: []}
    for row in rows:
        by_target[row.target].append(DataFile(row.path, row.day, row.size, row.rows, row.statistics))
    return Written(tuple(by_target[EVENTS]), tuple(by_target[DEAD_LETTERS]))


def _assignment(ranges: Sequence[OffsetRange]) -> str:
    import json

    return json.dumps({ranges[0].topic: [r.partition for r in ranges]})


def _is_of(known: Progress, partition: int) -> bool:
    return known.application_id.endswith(f":{partition}")


def commit_dead_letters(job: LoadJob, planned: Plan, written: Written) -> int | None:
    """Step 3; the version of the dead-letter table, or None if there was nothing to commit."""
    if not written.dead_letters:
        return None
    schema = pa.schema([*DEAD_LETTER_COLUMNS, (DAY, pa.date32())])
    open_or_create(job.dead_letters, schema, f"records of topic {job.topic} that could not be parsed")
    _check_topic(job, planned)
    metadata = {"moldau.job": job.name, "moldau.topic": job.topic}
    return commit(job.dead_letters, written.dead_letters, planned.dead_before, planned.after, metadata)


def commit_events(job: LoadJob, planned: Plan, written: Written) -> int:
    """Step 4; the version of the table that holds the files and the offsets."""
    _check_topic(job, planned)
    ranges = {str(r.partition): [r.start, r.end] for r in planned.ranges}
    metadata = {"moldau.job": job.name, "moldau.topic": job.topic, "moldau.topic.id": planned.topic_id, "moldau.ranges": ranges}
    return commit(job.table, written.events, planned.before, planned.after, metadata)


def commit_group(job: LoadJob, planned: Plan) -> str | None:
    """Step 5; why it could not be done. The data is in the table: a load does not fail for it, and the next one tries again."""
    if job.group_id is None or not planned.group_offsets:
        return None
    from moldau.client.cluster import Cluster
    from moldau.client.groups import Committed, Groups

    offsets = {partition: Committed(Offset(offset)) for partition, offset in planned.group_offsets.items()}
    try:
        _check_topic(job, planned)
        with Cluster(job.bootstrap, client_id=f"moldau-load-{job.name}") as cluster:
            Groups(cluster).commit(job.group_id, offsets)
    except (MoldauError, LoadConflictError) as error:
        log.warning("%s: the offsets of the table were not committed to group %s: %s", job.table, job.group_id, error)
        return str(error)
    return None


def _check_topic(job: LoadJob, planned: Plan) -> None:
    """The topic that was read is still the one that was planned for: its id belongs to the offsets that are committed."""
    with ClusterLog(job.bootstrap, f"moldau-load-{job.name}") as source:
        if source.topic_id(job.topic) != planned.topic_id:
            raise LoadConflictError(f"{job.table}: topic {job.topic} was deleted and made anew while it was loaded")
