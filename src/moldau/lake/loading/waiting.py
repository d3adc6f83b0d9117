"""How much a job has before it, for the line that is said before Spark starts; what a load then takes it finds out itself."""

from collections.abc import Sequence

from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.jobs import LoadJobs
from moldau.lake.reading.cluster_log import ClusterLog, KnownTopic
from moldau.lake.reading.offsets import EARLIEST, LATEST
from moldau.lake.reading.options import ISOLATION_LEVELS
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import format_named
from moldau.lake.tables.owner import application_id
from moldau.model.identity import TopicPartition


def records_waiting(jobs: LoadJobs, loads: Sequence[LoadJob], timeout_s: float = 10.0) -> int:
    """Offsets between the tables and the ends of their topics. WorldError, PeerError."""
    level = ISOLATION_LEVELS[jobs.isolation_level]
    with ClusterLog(jobs.bootstrap, f"moldau-load-{jobs.name}", timeout_s, isolation_level=level) as source:
        known = source.topics([job.topic for job in loads])
        return sum(_waiting(source, job, known[job.topic]) for job in loads if job.topic in known)


def _waiting(source: ClusterLog, job: LoadJob, topic: KnownTopic) -> int:
    try:
        table = format_named(job.table_format).open(job.table)
    except TableError:
        return 0  # its load says why
    partitions = [TopicPartition(job.topic, number) for number in range(topic.partitions)]
    firsts, lasts = source.offsets(dict.fromkeys(partitions, EARLIEST)), source.offsets(dict.fromkeys(partitions, LATEST))
    loaded = {each: table and table.offset(application_id(job.name, topic.id, each.partition)) for each in partitions}
    return sum(max(0, lasts[each] - max(firsts[each], loaded[each] or 0)) for each in partitions)
