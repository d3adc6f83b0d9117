"""What a load changes in its tables: the table is prepared for it (step 2), and two commits end it (steps 4 and 5), the dead letters first.

A record is in one of the two tables because a record that the dead letters hold is left out by the next load, wherever the one that put it
there died; the other order would have to know what the table holds. The table is looked at before the dead letters are committed, so that
a load that slept while another one took its records, and may have read them by schemas that this one did not know, puts none of them aside.
The first load of a job that has dead letters claims the topic in the table before them: of two jobs of different names that are at it at
once only one puts records aside.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any

from moldau.lake.counts import COUNTS_KEY, dead_letters_of
from moldau.lake.loading.errors import SchemaChangeError
from moldau.lake.loading.job import dead_letter_schema
from moldau.lake.loading.plan import Plan
from moldau.lake.points import reached
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.tables.committing import LoadConflictError, TableWriter, check, commit, discard, progress
from moldau.lake.tables.data_files import PARTITIONINGS, DataFile
from moldau.lake.tables.format import Snapshot, TableChange, TableError, TableMismatchError
from moldau.lake.tables.opening import open_or_create
from moldau.lake.tables.rewriting import widen
from moldau.lake.tables.schemas import evolve
from moldau.model.errors import MoldauError

log = logging.getLogger(__name__)

_WIDEN_TRIES = 5


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files that tasks have written and no version names yet, and the counts of what they were made from."""

    events: tuple[DataFile, ...]
    dead_letters: tuple[DataFile, ...]
    counts: dict[str, Any]
    """As `moldau.lake.counts` writes them."""
    skipped: tuple[OffsetRange, ...] = ()
    """Offsets that went from the log after the load was planned."""


def prepare_table(planned: Plan) -> Plan:
    """Step 2: create the table if there is none, and give its columns wider types where the load needs them. The same plan over that table.

    New columns come with the load's own commit. SchemaChangeError; LoadConflictError if another load of the job was committed meanwhile.
    """
    job = planned.job
    base, schema = _table_for(planned)
    before = progress(base, [known.application_id for known in planned.before])
    if before != list(planned.before):
        raise LoadConflictError(f"{job.table}: another load of job {job.name} was at work while this one was planned")
    return replace(planned, base=base, schema=schema)


def _table_for(planned: Plan) -> tuple[Snapshot, Any]:
    """The table, and its columns after this load."""
    job, tables = planned.job, planned.tables
    for _ in range(_WIDEN_TRIES):
        base = open_or_create(tables, job.table, planned.schema, job.partition_columns, f"events of topic {job.topic}")
        try:
            evolution = evolve(job.table, base.schema, planned.schema)
        except TableMismatchError as error:
            raise SchemaChangeError(str(error)) from error
        if not evolution.widened:
            return base, evolution.schema
        log.info("%s: the columns %s become wider", job.table, ", ".join(evolution.widened))
        try:
            widen(tables, job.table, base, evolution)
        except LoadConflictError as error:
            log.info("%s: %s; retrying", job.table, error)
    raise LoadConflictError(f"{job.table}: others were faster {_WIDEN_TRIES} times in a row while columns were made wider")


def commit_both(planned: Plan, written: WrittenFiles, writer: TableWriter, source: ClusterLog) -> int:
    """Steps 4 and 5; the version of the table. Files of a commit that was refused are removed."""
    left = [(planned.job.dead_letters, written.dead_letters), (planned.job.table, written.events)]
    try:
        commit_dead_letters(planned, written, writer, source)
        del left[0]
        reached("driver: dead letters committed")
        reached("driver: table about to be committed")
        version = commit_events(planned, written, writer, source)
    except (TableError, MoldauError) as error:
        for path, files in left:
            discard(planned.tables, path, [file.path for file in files], error)
        raise
    reached("driver: table committed")
    return version


def commit_dead_letters(planned: Plan, written: WrittenFiles, writer: TableWriter, source: ClusterLog) -> int | None:
    """Step 4; the version of the dead-letter table, or None if there was nothing to commit."""
    if not written.dead_letters:
        return None
    job = planned.job
    assert planned.after is not None
    description = f"records of topic {job.topic} that could not be decoded"
    open_or_create(planned.tables, job.dead_letters, dead_letter_schema(), PARTITIONINGS["day"], description)
    check_topic(planned, source)
    assert planned.base is not None
    check(planned.tables, job.table, planned.base, planned.before, writer)
    _claim(planned)
    ahead = {known.application_id: known.offset or 0 for known in planned.dead_before}
    offsets = {name: max(offset, ahead[name]) for name, offset in planned.after.items()}
    change = TableChange("LOAD", written.dead_letters, offsets=offsets, metadata=_words(planned))
    return commit(planned.tables, job.dead_letters, change, before=planned.dead_before, writer=writer)


def commit_events(planned: Plan, written: WrittenFiles, writer: TableWriter, source: ClusterLog) -> int:
    """Step 5; the version of the table that holds the files, the offsets, the counts and the new columns."""
    check_topic(planned, source)
    assert planned.base is not None
    assert planned.after is not None
    words = {
        **_words(planned),
        "moldau.rows": sum(file.rows for file in written.events),
        "moldau.dead.letters": dead_letters_of(written.counts),
        COUNTS_KEY: written.counts,
    }
    schema = None if planned.schema == planned.base.schema else planned.schema
    change = TableChange("LOAD", written.events, schema=schema, offsets=planned.after, metadata=words)
    return commit(planned.tables, planned.job.table, change, base=planned.base, before=planned.before, writer=writer, owner=planned.owner)


def _claim(planned: Plan) -> None:
    """Record in the table that this job loads the topic, unless that is recorded. OtherJobError if another job was faster."""
    path, owner = planned.job.table, planned.owner
    if any(known.offset is not None for known in planned.before) or owner.is_known(planned.tables, path):
        return
    change = TableChange("CLAIM TOPIC", offsets={owner.claim_id: 1}, metadata={"moldau.claimed.by": owner.job, "moldau.topic": owner.topic})
    commit(planned.tables, path, change, base=planned.base, before=planned.before, owner=owner)


def _words(planned: Plan) -> dict[str, Any]:
    return {
        "moldau.job": planned.job.name,
        "moldau.topic": planned.job.topic,
        "moldau.topic.id": planned.topic_id,
        "moldau.ranges": {str(r.partition): [r.start, r.end] for r in planned.ranges},
    }


def check_topic(planned: Plan, source: ClusterLog) -> None:
    """The topic that was read is still the one that was planned for: its id belongs to the offsets that are committed."""
    job = planned.job
    if source.topic_id(job.topic) != planned.topic_id:
        raise LoadConflictError(f"{job.table}: topic {job.topic} was deleted and recreated while it was loaded")
