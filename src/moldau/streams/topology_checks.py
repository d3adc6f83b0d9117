"""What is wrong with a topology, and the order in which its jobs feed each other. Pure: of jobs as they were made.

* A cycle: a job that reads what comes from it.
* An input topic that does not exist, and that no job writes.
* An output that two jobs write, and a directory of checkpoints that two jobs have.
* A job at other brokers than the topology's: status and stop would not find it.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

_TOPIC = "topic "


class Check(Enum):
    """What was looked for. The values are those of ``--json``."""

    FILE = "file"
    """A file that raises an error, or does not make the job."""
    JOB = "job"
    """What the job itself would be refused for: its queries, checkpoints and outputs."""
    CYCLE = "cycle"
    NO_INPUT = "no input"
    OUTPUT_TWICE = "output twice"
    DIRECTORY_TWICE = "directory twice"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake, with the place of what is to be changed."""

    check: Check
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: error: {self.text}"


@dataclass(frozen=True, slots=True)
class JobEnds:
    """What a job reads and writes, and the line of it in the topology."""

    name: str
    inputs: tuple[str, ...]
    """Topics."""
    outputs: tuple[str, ...]
    """Places: `topic flights`, `table /lake/flights`."""
    directory: str
    brokers: str
    line: int = 1

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that it writes."""
        return tuple(each.removeprefix(_TOPIC) for each in self.outputs if each.startswith(_TOPIC))


def feeders(jobs: Sequence[JobEnds]) -> dict[str, list[str]]:
    """Of each job those that write what it reads."""
    return {job.name: [each.name for each in jobs if not set(each.topics).isdisjoint(job.inputs)] for job in jobs}


def stages(jobs: Sequence[JobEnds]) -> list[list[str]]:
    """The jobs in the order of feeding: each stage after those that feed it. Jobs of a cycle, and those after it, are left out."""
    needs, done, found = feeders(jobs), set[str](), []
    while stage := [name for name, before in needs.items() if name not in done and done.issuperset(before)]:
        found.append(stage)
        done.update(stage)
    return found


def find(file: str, bootstrap: str, jobs: Sequence[JobEnds], topics: Collection[str]) -> list[Finding]:
    """All findings, in the order of their lines; `topics` are those that exist."""
    found = [
        *_cycles(file, jobs),
        *_inputs(file, jobs, topics),
        *_twice(file, Check.OUTPUT_TWICE, jobs, {job.name: job.outputs for job in jobs}, "writes {}, which job {} writes"),
        *_twice(
            file,
            Check.DIRECTORY_TWICE,
            jobs,
            {job.name: (os.path.realpath(job.directory),) for job in jobs},
            "has its checkpoints in {}, as job {} has",
        ),
        *(
            Finding(
                Check.BROKERS, file, job.line, f"job {job.name} is at {job.brokers}, and the topology at {bootstrap}: leave brokers= out"
            )
            for job in jobs
            if job.brokers != bootstrap
        ),
    ]
    return sorted(found, key=lambda each: each.line)


def _cycles(file: str, jobs: Sequence[JobEnds]) -> Iterator[Finding]:
    """Each cycle once, at its first job."""
    needs = feeders(jobs)
    seen: set[str] = set()
    for job in jobs:
        cycle = _cycle_of(job.name, needs)
        if not cycle or not seen.isdisjoint(cycle):
            continue
        seen.update(cycle)
        by_name = {each.name: each for each in jobs}
        steps = []
        for reader, writer in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            topic = next(each for each in by_name[reader].inputs if each in by_name[writer].topics)
            steps.append(f"job {reader} reads topic {topic}, which job {writer} writes")
        yield Finding(Check.CYCLE, file, job.line, f"a cycle: {'; '.join(steps)}")


def _cycle_of(start: str, needs: Mapping[str, Sequence[str]]) -> list[str]:
    """A way from a job over its feeders back to it; empty if there is none."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for each in needs[way[-1]]:
            if each == start:
                return way
            if each not in seen:
                seen.add(each)
                ways.append([*way, each])
    return []


def _inputs(file: str, jobs: Sequence[JobEnds], topics: Collection[str]) -> Iterator[Finding]:
    written = {topic for job in jobs for topic in job.topics}
    for job in jobs:
        for topic in job.inputs:
            if topic not in topics and topic not in written:
                text = f"job {job.name} reads topic {topic}, which does not exist, and no job writes it"
                yield Finding(Check.NO_INPUT, file, job.line, text)


def _twice(file: str, check: Check, jobs: Sequence[JobEnds], places: Mapping[str, Sequence[str]], words: str) -> Iterator[Finding]:
    owners: dict[str, str] = {}
    for job in jobs:
        for place in places[job.name]:
            if place in owners:
                yield Finding(check, file, job.line, f"job {job.name} {words.format(place, owners[place])} already")
            owners.setdefault(place, job.name)
