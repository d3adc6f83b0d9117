"""A load: what a topic holds beyond what the table holds, into the table, once.

The order of the steps is what makes each event loaded once. 1. Read from the table how far each partition has been loaded, and from the
brokers how far it reaches: the range is fixed, nothing is changed (`plan`). 2. The table is created, or its columns are widened (`commit`).
3. Tasks read the range, each a share of every partition, decode the events and write Parquet files; they report the files and the audit's
counts, nothing else comes to the driver (`task`). 4. One commit of the dead-letter table. 5. One commit of the table: its files, the new
offsets, the counts, new columns (`commit`). 6. The counts go to the audit (`audit`), and the table's offsets to the job's group, which
shows the lag. 7. The merged table, if the job has one, takes the new rows (`moldau.lake.merging`). One connection to the brokers serves all
steps of the driver.

A load that dies before 5 has added no rows that a reader of the table can see; the next one starts from the same offsets. If it died
between 4 and 5, the next one leaves out the records that the dead letters hold, and counts them as its own. If 6 or 7 was not reached, or
failed, the next one does it, whether or not there is anything to load: nothing is ever read from the audit or from the group.
"""

import logging
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from moldau.lake import points
from moldau.lake.counts import DeadLetterCounts, added, counts_to_json, dead_letters_of, latencies_added
from moldau.lake.loading.audit import Claim, check_unclaimed, claimed, keep_counts, own_tier, publish_counts
from moldau.lake.loading.commit import WrittenFiles, check_topic, commit_both, prepare_table
from moldau.lake.loading.errors import task_failure
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.plan import ACCEPT_LOSS, Plan, plan_load, share_out, task_count
from moldau.lake.merging.merge import MergeResult, merge_table
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.options import ISOLATION_LEVELS, ReadOptions, TopicNames
from moldau.lake.tables.committing import LoadConflictError, TableWriter, discard
from moldau.lake.tables.data_files import FileError, files_of
from moldau.lake.tables.format import TableError
from moldau.lake.tables.places.addresses import StoreSettings
from moldau.model.errors import MoldauError

if TYPE_CHECKING:
    from moldau.lake.loading.task import TaskReport

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load did; `version` is the table's, whether or not it changed, and None if there is no table yet."""

    rows: int
    dead_letters: int
    """With those that a killed load had committed already."""
    files: int
    bytes: int
    version: int | None
    ranges: tuple[OffsetRange, ...]
    seconds: float
    group_error: str | None = None
    """Why the offsets are not in the group, if they are not; the next load commits them."""
    audit_error: str | None = None
    """Why the counts are not in the audit, if they are not; the next load publishes them."""
    more: bool = False
    """Whether it stopped at the job's `records_max`, with more to come."""
    first_dead_letter: str | None = None
    """Of the dead letters the first one: partition, offset and reason."""
    merge: MergeResult | None = None
    """What became of the merged table; None without one, or where it could not be brought forward."""
    merge_error: TableError | FileError | None = None
    """Why the merged table does not have the rows; the next load merges them."""
    skipped: tuple[OffsetRange, ...] = ()
    """Offsets that were to be loaded and are no longer in the log, with `fail_on_data_loss` off."""


def load(spark: Any, job: LoadJob, *, fail_on_data_loss: bool = True, writer: TableWriter | None = None, mark: bool = True) -> LoadResult:
    """Bring the table up to the end of the topic, or as far as `job.records_max` lets it.

    `writer` identifies who loads; a process that loads repeatedly keeps one, and is refused (FencedError) once another has taken over. A
    load publishes a mark to the audit (all is counted up to now), with `mark` also if nothing was to load. OtherTierError if the job's tier
    counts another load of the topic. LoadConflictError if another load of the job was faster, OtherJobError if a job of another name has
    loaded the topic into the table. DataLossError if records between the table and the topic's first offset are missing, unless
    `fail_on_data_loss` is off: then what is left is loaded, and the audit shows the gap. SchemaChangeError, TaskError, LoadError,
    TableError, FileError, RegistryError, WorldError, PeerError. A commit is atomic, also when one of these is raised.
    """
    begun = time.monotonic()
    who = writer or TableWriter(job.name)
    with ClusterLog(job.bootstrap_servers, f"moldau-load-{job.name}", isolation_level=ISOLATION_LEVELS[job.isolation_level]) as source:
        planned = plan_load(job, source, fail_on_data_loss=fail_on_data_loss)
        if planned.ranges:
            if planned.base is None and job.tier is not None and planned.decoding is not None and planned.decoding.tracked:
                check_unclaimed(job, source.cluster)  # before there is a table, which a refused load would leave
            planned = prepare_table(planned)
        points.reached("driver: planned")
        written = WrittenFiles((), (), {})
        version = None if planned.base is None else planned.base.version
        claim = _claim_of_tier(planned, source, mark=mark)
        if planned.ranges:
            keep_counts(job, planned.tables, "" if claim is None else claim.epoch)
            written = write_files(spark, planned, fail_on_data_loss=fail_on_data_loss)
            points.reached("driver: files written")
            version = commit_both(planned, written, who, source)
        counted_ms = None if claim is None or planned.more or not (planned.ranges or mark) else planned.asked_ms
        audit_error = publish_counts(job, planned.tables, "" if claim is None else claim.epoch, counted_ms)
        group_error = commit_group(planned, source)
        points.reached("driver: group committed")
    merge, merge_error = (None, None) if version is None else bring_forward(job)
    return LoadResult(
        rows=sum(file.rows for file in written.events),
        dead_letters=dead_letters_of(written.counts),
        files=len(written.events),
        bytes=sum(file.size for file in written.events),
        version=version,
        ranges=planned.ranges,
        seconds=time.monotonic() - begun,
        group_error=group_error,
        audit_error=audit_error,
        more=planned.more,
        first_dead_letter=_described(job.topic, written.counts.get("firstDead")),
        merge=merge,
        merge_error=merge_error,
        skipped=planned.skipped + written.skipped,
    )


def bring_forward(job: LoadJob) -> tuple[MergeResult | None, TableError | FileError | None]:
    """Step 7; why it could not be done. The data is in the table: a load does not fail for it."""
    if job.merged is None:
        return None, None
    try:
        done = merge_table(job.table, job.merged, keys=job.keys, order=job.merge_order, deletes=job.deletes, table_format=job.table_format)
    except (TableError, FileError) as error:
        log.warning("%s: the merged table was not brought forward: %s", job.merged, error)
        return None, error
    return done, None


def _claim_of_tier(planned: Plan, source: ClusterLog, *, mark: bool) -> Claim | None:
    """The claim of the job's tier, as the audit topic has it where something is to be published; None for a load that counts no
    tracked events."""
    job = planned.job
    if job.tier is None or planned.base is None:
        return None
    known = claimed(job, planned.base.id)
    if planned.decoding is None:  # nothing to load: what is there was counted under a claim, or is no tracked events
        return own_tier(job, planned.base.id, source.cluster) if mark and known is not None else known
    return own_tier(job, planned.base.id, source.cluster) if planned.decoding.tracked else None


def _described(topic: str, first: tuple[int, int, str] | None) -> str | None:
    return None if first is None else f"{topic}-{first[0]} offset {first[1]}: {first[2]}"


def write_files(spark: Any, planned: Plan, *, fail_on_data_loss: bool = True) -> WrittenFiles:
    """Step 3: Spark tasks write the files; their names come back. DataLossError, TaskError: then what tasks have written is removed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    job, load_id = planned.job, uuid.uuid4().hex
    try:
        reports = _run_tasks(spark, planned, load_id, fail_on_data_loss=fail_on_data_loss)
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        for directory in (job.table, job.dead_letters):
            discard(planned.tables, directory, files_of(directory, job.name, load_id))
        raise task_failure(job.topic, error) from error
    aside = DeadLetterCounts(first=planned.first_held)
    for report in reports:
        aside.add(report.put_aside)
    return WrittenFiles(
        tuple(file for report in reports for file in report.events),
        tuple(file for report in reports for file in report.dead_letters),
        counts_to_json(
            added(report.counts for report in reports),
            sum(report.untracked for report in reports),
            sum(report.untracked_bytes for report in reports),
            aside,
            latencies=latencies_added(report.latencies for report in reports),
            seen_ms=planned.asked_ms,
        ),
        tuple(skipped for report in reports for skipped in report.skipped),
    )


def _run_tasks(spark: Any, planned: Plan, load_id: str, *, fail_on_data_loss: bool) -> "list[TaskReport]":
    """One report of each task: of an attempt that succeeded, whatever others there were. Spark starts the tasks, and carries no records."""
    from moldau.lake.loading.task import TaskOrder, run_tasks

    job, context = planned.job, spark.sparkContext
    assert planned.decoding is not None
    options = ReadOptions(
        job.bootstrap_servers,
        TopicNames((job.topic,)),
        client_id=f"moldau-load-{job.name}",
        isolation_level=ISOLATION_LEVELS[job.isolation_level],
        fail_on_data_loss=fail_on_data_loss,
        accept_loss=ACCEPT_LOSS,
    )
    order = TaskOrder(
        job=job,
        decoding=planned.decoding,
        schema=planned.schema,
        topic_id=planned.topic_id,
        seen_ms=planned.asked_ms,
        held=planned.held or {},
        load_id=load_id,
        options=options,
        settings=StoreSettings.of_driver(job.table, job.dead_letters),
        orders=points.orders(),
    )
    shares = share_out(planned.ranges, task_count(planned.ranges, context.defaultParallelism, job.writers))
    reports: list[TaskReport] = context.parallelize(shares, len(shares)).mapPartitions(partial(run_tasks, order=order)).collect()
    if len(reports) != len(shares):  # to pyspark the end of a connection is the end of what there is, also when Java was killed
        raise EOFError(f"only {len(reports)} of {len(shares)} tasks reported")
    return reports


def commit_group(planned: Plan, source: ClusterLog) -> str | None:
    """The offsets to the job's group; why it could not be done. The data is in the table: a load does not fail for it."""
    job = planned.job
    if job.group_id is None or not planned.group_offsets:
        return None
    try:
        check_topic(planned, source)
        source.commit(job.group_id, planned.group_offsets)
    except (MoldauError, LoadConflictError) as error:
        log.warning("%s: the offsets of the table were not committed to group %s: %s", job.table, job.group_id, error)
        return str(error)
    return None
