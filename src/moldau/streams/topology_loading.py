"""The jobs of a topology, made in this process by their files, looked at, and not run."""

from dataclasses import dataclass

from moldau.lake.reading.cluster_log import ClusterLog
from moldau.model.errors import MoldauError
from moldau.streams.files import load_job, variables
from moldau.streams.job import StreamJob
from moldau.streams.program import FAILURES
from moldau.streams.state_topic import StateBoard, StateTopic
from moldau.streams.topology_checks import Check, Finding, JobEnds, find
from moldau.streams.topology_file import PlannedJob, StreamTopology


@dataclass(frozen=True, slots=True)
class LoadedTopology:
    """What its jobs read and write, and what is wrong with it."""

    jobs: tuple[JobEnds, ...]
    """Without those whose files make none."""
    findings: tuple[Finding, ...]


def load_topology(topology: StreamTopology) -> LoadedTopology:
    """Make all jobs, on one Spark, and compare them with each other, their checkpoints and the cluster. WorldError, PeerError."""
    with ClusterLog(topology.bootstrap, "moldau-stream") as source:
        there = source.topics(None)
    board = _board(topology.bootstrap)
    jobs: list[JobEnds] = []
    found: list[Finding] = []
    for planned in topology.jobs:
        with variables(planned.environment):
            try:
                job = load_job(planned.file, planned.name)
                ends = _ends(job, planned, board.generations_of(job.name).current)
            except (MoldauError, *FAILURES) as error:
                found.append(Finding(Check.FILE, topology.file, planned.file_line, f"job {planned.name}: {error}"))
                continue
            jobs.append(ends)
            try:
                job.check()
            except FAILURES as error:
                found.append(Finding(Check.JOB, topology.file, planned.line, _named(planned.name, error)))
    found += find(topology.file, topology.bootstrap, jobs, there)
    return LoadedTopology(tuple(jobs), tuple(sorted(found, key=lambda each: each.line)))


def _board(bootstrap: str) -> StateBoard:
    topic = StateTopic(bootstrap)
    try:
        return topic.read_if_there()
    finally:
        topic.close()


def _ends(job: StreamJob, planned: PlannedJob, generation: int) -> JobEnds:
    """With the outputs of the generation that is current, which are those that other jobs read."""
    places = tuple(output.place for query in job.queries() for output in query.of_generation(generation).written)
    return JobEnds(job.name, tuple(job.input_topics()), places, job.directory, job.brokers, planned.line)


def _named(job: str, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(f"job {job}") else f"job {job}: {text}"
