"""What can be known of a job without Spark, asked before Spark is started: that takes seconds, and these answers do not need it."""

import os
import tempfile
from collections.abc import Sequence

from moldau.adapters.usable_directory import check_usable
from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJob, LoadJobs
from moldau.lake.reading.cluster_log import ClusterLog, KnownTopic
from moldau.lake.reading.offsets import EARLIEST, LATEST
from moldau.lake.reading.options import ISOLATION_LEVELS
from moldau.lake.tables.committing import application_id
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import check_place, format_named, place_at
from moldau.lake.tables.places.addresses import is_address
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition
from moldau.model.near_names import did_you_mean

_TIMEOUT_S = 10.0
ROOM_BYTES = 256 * 1024
"""A table's log and a small file, or Spark's log: a disk without this much is full."""


def check_jobs(jobs: LoadJobs) -> list[LoadJob]:
    """The directory can be written, the brokers answer and have the topics that are named, the registry answers. The topics' jobs: none
    where no topic matches the pattern.

    LoadError for a directory or topics; WorldError or PeerError for brokers, RegistryError or RegistryUnavailableError for a registry.
    """
    check_directory(jobs.directory)
    wanted = None if jobs.pattern is not None else list(jobs.topics)
    with ClusterLog(jobs.bootstrap_servers, f"moldau-load-{jobs.name}", timeout_s=_TIMEOUT_S) as source:
        there = source.partition_counts(wanted)
        missing = jobs.missing(there)
        hint = did_you_mean(missing[0], source.partition_counts(None)) if missing else ""
    if missing:
        known = "there is no topic" if len(missing) == 1 else "there are no topics"
        raise LoadError(f"{known} {', '.join(map(repr, missing))} at {jobs.bootstrap_servers}{hint}")
    found = jobs.jobs(there)
    for url in sorted({job.registry for job in found if job.registry is not None}):
        check_registry(url)
    return found


def check_directory(path: str) -> None:
    """A table can be made there. LoadError has why not, and what to do."""
    try:
        check_place(path)
        if is_address(path):
            place_at(path).check()
        else:
            check_usable(os.path.abspath(path), "a directory of tables", "--to", room_bytes=ROOM_BYTES)
    except (TableError, StorageError) as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"{path}: no table can be made there: {error.strerror or error}") from error


def check_work_directory(path: str | None) -> None:
    """Spark can keep its own files there (None: where temporary ones are). LoadError has why not, and what to do."""
    try:
        check_usable(
            os.path.abspath(path or tempfile.gettempdir()), "a directory for Spark's own files", "--work-dir", room_bytes=ROOM_BYTES
        )
    except FileNotFoundError as error:
        raise LoadError(f"{error.strerror}; choose a directory for Spark's own files with --work-dir") from error
    except StorageError as error:
        raise LoadError(str(error)) from error


def check_registry(url: str) -> None:
    """A registry answers there. LoadError for a URL that cannot be read; RegistryError, RegistryUnavailableError."""
    from moldau.registry.client import RegistryClient

    try:
        client = RegistryClient(url, timeout_s=_TIMEOUT_S)
    except ValueError as error:
        raise LoadError(f"registry {url}: {error}") from error
    with client:
        client.compatibility()


def records_waiting(jobs: LoadJobs, loads: Sequence[LoadJob], timeout_s: float = 10.0) -> int:
    """Offsets between the tables and the ends of their topics. WorldError, PeerError."""
    level = ISOLATION_LEVELS[jobs.isolation_level]
    with ClusterLog(jobs.bootstrap_servers, f"moldau-load-{jobs.name}", timeout_s, isolation_level=level) as source:
        known = source.topics([job.topic for job in loads])
        return sum(_waiting(source, job, known[job.topic]) for job in loads if job.topic in known)


def _waiting(source: ClusterLog, job: LoadJob, topic: KnownTopic) -> int:
    try:
        table = format_named(job.table_format).open(job.table)
    except TableError:
        return 0  # its load reports why
    partitions = [TopicPartition(job.topic, number) for number in range(topic.partitions)]
    firsts, lasts = source.offsets(dict.fromkeys(partitions, EARLIEST)), source.offsets(dict.fromkeys(partitions, LATEST))
    loaded = {each: table and table.offset(application_id(job.name, topic.id, each.partition)) for each in partitions}
    return sum(max(0, lasts[each] - max(firsts[each], loaded[each] or 0)) for each in partitions)
