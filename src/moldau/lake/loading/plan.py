"""Step 1 of a load: what it will read and how, fixed on the driver before anything is done."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from moldau.lake.loading.errors import LoadError, NoSchemaError
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.schema import EventDecoding, decoding_of
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import EARLIEST, LATEST, DataLossError, OffsetRange, plan_ranges
from moldau.lake.tables.committing import LoadedOffset, TopicOwner, application_id, progress
from moldau.lake.tables.format import Snapshot, TableFormat
from moldau.lake.tables.opening import format_named
from moldau.lake.tables.places.addresses import place_of
from moldau.model.identity import TopicPartition
from moldau.tracking.clock import now_ms

TASK_OFFSETS_MIN = 200_000
"""To load this many takes a task about as long as its Python process takes to start."""


def share_out(ranges: Sequence[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """The ranges in `count` parts or fewer, each offset in one of them.

    Task k of n takes the k-th n-th of every partition. What partitions have at about the same place is of about the same time, so most
    table partitions get their rows, and so their file, from one task.
    """
    parts = [[_part(each, number, count) for each in ranges] for number in range(count)]
    return [part for each in parts if (part := [wanted for wanted in each if wanted.size])]


def task_count(ranges: Sequence[OffsetRange], parallel: int, writers: int | None) -> int:
    """How many tasks: `writers`, if the job has that; otherwise as many as run at once, or fewer where there is little to load."""
    if writers is not None:
        return writers
    return max(1, min(parallel, sum(each.size for each in ranges) // TASK_OFFSETS_MIN))


def _part(wanted: OffsetRange, number: int, count: int) -> OffsetRange:
    return wanted._replace(start=wanted.start + wanted.size * number // count, end=wanted.start + wanted.size * (number + 1) // count)


log = logging.getLogger(__name__)

ACCEPT_LOSS = "--no-fail-on-data-loss"
"""The option of ``moldau load`` that loads what is left where records were deleted, for messages."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one load will do."""

    job: LoadJob
    tables: TableFormat
    topic_id: str
    ranges: tuple[OffsetRange, ...]
    group_offsets: Mapping[TopicPartition, int]
    """The offsets of the table after the load, by partition."""
    base: Snapshot | None
    """The table before the load; None if there is none yet."""
    decoding: EventDecoding | None
    schema: Any
    """Columns that the table has to have for the load; of a prepared load all columns of the table after it."""
    before: tuple[LoadedOffset, ...] = ()
    """Of the partitions in `after`."""
    dead_before: tuple[LoadedOffset, ...] = ()
    after: Mapping[str, int] | None = None
    """The next offsets that the load commits, by application id: the ends of its ranges, and, with `fail_on_data_loss` off, the log's start
    where a partition holds nothing after the table's offset; None if there is nothing to load."""
    held: Mapping[int, frozenset[int]] | None = None
    """Offsets beyond the table's that the dead letters hold already, by partition."""
    first_held: tuple[int, int, str] | None = None
    """Of the dead letters in the ranges that are held already the first one: partition, offset and reason."""
    asked_ms: int = 0
    """When the brokers were asked for the ends of the ranges, in ms since 1970."""
    more: bool = False
    """Whether the job's `records_max` leaves records for another load."""
    skipped: tuple[OffsetRange, ...] = ()
    """Offsets after the table's that are no longer in the log."""

    @property
    def owner(self) -> TopicOwner:
        """Who loads this topic into the table, and wants to be the only one."""
        return TopicOwner(self.job.name, self.job.topic, self.topic_id)


def plan_load(job: LoadJob, source: ClusterLog, *, fail_on_data_loss: bool = True) -> Plan:
    """Reads the table, the topic and the schemas, and changes nothing. The errors are those of `moldau.lake.loading.load.load`."""
    tables = format_named(job.table_format)
    there = tables.open(job.table)
    if job.topic not in source.partition_counts([job.topic]):
        return _without_topic(job, tables, there, fail_on_data_loss=fail_on_data_loss)
    topic_id = source.topic_id(job.topic)
    partitions = [TopicPartition(job.topic, number) for number in range(source.partition_counts([job.topic])[job.topic])]
    asked_ms = now_ms()
    firsts = source.offsets(dict.fromkeys(partitions, EARLIEST))
    lasts = source.offsets(dict.fromkeys(partitions, LATEST))
    ids = {partition: application_id(job.name, topic_id, partition.partition) for partition in partitions}
    known = {partition: None if there is None else there.offset(name) for partition, name in ids.items()}
    starts = {partition: firsts[partition] if offset is None else offset for partition, offset in known.items()}
    if there is not None and all(offset is None for offset in known.values()):
        TopicOwner(job.name, job.topic, topic_id).is_known(tables, job.table)
    there_is = plan_ranges(starts, lasts, firsts, lasts, fail_on_data_loss=fail_on_data_loss, accept_loss=ACCEPT_LOSS)
    gone = tuple(OffsetRange(*partition, start, firsts[partition]) for partition, start in starts.items() if start < firsts[partition])
    ranges = _at_most(there_is, job.records_max)
    group_offsets = {partition: offset for partition, offset in known.items() if offset is not None}
    if not ranges:
        schema = None if there is None else there.schema
        return Plan(job, tables, topic_id, (), group_offsets, there, None, schema, asked_ms=asked_ms, skipped=gone)
    if there is not None and all(offset is None for offset in known.values()):
        _log_if_recreated(job, tables, topic_id)
    decoding = decoding_of(job, None if there is None else there.schema)
    if decoding is None:
        raise NoSchemaError(f"topic {job.topic}: there are records, and subject {job.subject_name} has no schema in {job.registry}")
    ends = {TopicPartition(job.topic, r.partition): r.end for r in ranges}
    for each in () if fail_on_data_loss else gone:  # also where nothing is left to be read: the commit of the others moves the offset
        ends.setdefault(TopicPartition(job.topic, each.partition), each.end)
    group_offsets |= ends
    wanted = [ids[partition] for partition in ends]
    dead_letters = tables.open(job.dead_letters)
    before, dead_before = progress(there, wanted), progress(dead_letters, wanted)
    held, first_held = _held(job, topic_id, dead_letters, ranges, dead_before[: len(ranges)])
    return Plan(
        job=job,
        tables=tables,
        topic_id=topic_id,
        ranges=tuple(ranges),
        group_offsets=group_offsets,
        base=there,
        decoding=decoding,
        schema=job.table_schema(decoding.columns),
        before=tuple(before),
        dead_before=tuple(dead_before),
        after=dict(zip(wanted, ends.values(), strict=True)),
        held=held,
        first_held=first_held,
        asked_ms=asked_ms,
        more=ranges != there_is,
        skipped=gone,
    )


def _without_topic(job: LoadJob, tables: TableFormat, there: Snapshot | None, *, fail_on_data_loss: bool) -> Plan:
    """The topic was deleted: what was in it and not in the table is lost."""
    if there is None:
        raise LoadError(f"there is no topic {job.topic!r}")
    loaded = _held_up_to(job, tables) or "nothing of it"
    problem = f"topic {job.topic} was deleted; {job.table} holds {loaded}, and the records after that are lost"
    if fail_on_data_loss:
        raise DataLossError(f"{problem}; with {ACCEPT_LOSS} the table would be left as it is")
    log.warning("%s", problem)
    return Plan(job, tables, "", (), {}, there, None, there.schema)


def _log_if_recreated(job: LoadJob, tables: TableFormat, topic_id: str) -> None:
    """The table knows the topic by another id: it was deleted and recreated, and is loaded from its beginning."""
    held = _held_up_to(job, tables, but=topic_id)
    if held:
        message = "topic %s was deleted and recreated: %s held %s of the old one, and takes the new one from its beginning"
        log.warning(message, job.topic, job.table, held)


def _held_up_to(job: LoadJob, tables: TableFormat, but: str | None = None) -> str:
    """How far the topic was loaded that had another id than `but`, the last one of them: its partitions and their next offsets."""
    topic_id, ends = None, dict[int, int]()
    for version in tables.commits(job.table, -1):
        words = version.metadata
        if words.get("moldau.job") == job.name and "moldau.ranges" in words and words.get("moldau.topic.id") != but:
            if words.get("moldau.topic.id") != topic_id:
                topic_id, ends = words.get("moldau.topic.id"), {}
            ends |= {int(partition): end for partition, (_, end) in words["moldau.ranges"].items()}
    return ", ".join(f"{job.topic}-{partition} up to offset {end}" for partition, end in sorted(ends.items()))


def _at_most(ranges: list[OffsetRange], records_max: int | None) -> list[OffsetRange]:
    """The ranges cut to about `records_max` offsets together, each partition to its part of them."""
    total = sum(r.size for r in ranges)
    if records_max is None or total <= records_max:
        return ranges
    return [r._replace(end=r.start + max(1, r.size * records_max // total)) for r in ranges]


def _held(
    job: LoadJob, topic_id: str, dead_letters: Snapshot | None, ranges: list[OffsetRange], dead_before: list[LoadedOffset]
) -> tuple[dict[int, frozenset[int]], tuple[int, int, str] | None]:
    """What a load that died between its two commits has left in the table of dead letters, and the first one of it in the ranges."""
    ahead = {r.partition: r for r, known in zip(ranges, dead_before, strict=True) if (known.offset or 0) > r.start}
    if dead_letters is None or not ahead:
        return {}, None

    columns = ["job", "topic_id", "_partition", "_offset", "error"]
    mine = (pc.field("job") == job.name) & (pc.field("topic_id") == topic_id)
    mine &= pc.field("_partition").isin(pa.array(sorted(ahead), pa.int32())) & (pc.field("_offset") >= min(r.start for r in ahead.values()))
    found: dict[int, set[int]] = {partition: set() for partition in ahead}
    first: tuple[int, int, str] | None = None
    for file in dead_letters.files():
        table = pq.read_table(place_of(job.dead_letters).source(file.path), columns=columns, filters=mine, partitioning=None)
        for partition, offset, reason in zip(*(table.column(name).to_pylist() for name in columns[2:]), strict=True):
            found[partition].add(offset)
            if ahead[partition].start <= offset < ahead[partition].end and (first is None or (partition, offset) < first[:2]):
                first = partition, offset, reason
    return {partition: frozenset(offsets) for partition, offsets in found.items()}, first
