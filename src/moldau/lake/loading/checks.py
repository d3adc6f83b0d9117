"""What can be known of a job without Spark, asked before Spark is started: that takes seconds, and these answers do not need it."""

import os
import tempfile

from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.jobs import LoadJobs
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import check_place
from moldau.model.near_names import did_you_mean

_TIMEOUT_S = 10.0


def check_jobs(jobs: LoadJobs) -> list[LoadJob]:
    """The directory can be written, the brokers answer and have the topics that are named, the registry answers. The topics' jobs: none
    where no topic matches the pattern.

    LoadError for a directory or topics; WorldError or PeerError for brokers, RegistryError or RegistryUnavailableError for a registry.
    """
    check_directory(jobs.directory)
    wanted = None if jobs.pattern is not None else list(jobs.topics)
    with ClusterLog(jobs.bootstrap, f"moldau-load-{jobs.name}", timeout_s=_TIMEOUT_S) as source:
        there = source.partition_counts(wanted)
        missing = jobs.missing(there)
        hint = did_you_mean(missing[0], source.partition_counts(None)) if missing else ""
    if missing:
        known = "there is no topic" if len(missing) == 1 else "there are no topics"
        raise LoadError(f"{known} {', '.join(map(repr, missing))} at {jobs.bootstrap}{hint}")
    found = jobs.jobs(there)
    for url in sorted({job.registry for job in found if job.registry is not None}):
        check_registry(url)
    return found


def check_directory(path: str) -> None:
    """Make the directory if it is missing, and a file in it for a moment. LoadError."""
    try:
        check_place(path)
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except TableError as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_registry(url: str) -> None:
    """A registry answers there. LoadError for a URL that cannot be read; RegistryError, RegistryUnavailableError."""
    from moldau.registry.client import RegistryClient

    try:
        client = RegistryClient(url, timeout_s=_TIMEOUT_S)
    except ValueError as error:
        raise LoadError(f"registry {url}: {error}") from error
    with client:
        client.compatibility()
