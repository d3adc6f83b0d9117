"""The queries of a job, and the order in which they feed each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moldau.streams.errors import StreamError
from moldau.streams.late import LateOutput
from moldau.streams.outputs import Output, TopicOutput
from moldau.streams.plans import inputs_of, operators_of, topics_read
from moldau.streams.shape import QueryShape


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A DataFrame that is written, and where to."""

    name: str
    frame: Any
    outputs: tuple[Output, ...]
    mode: str
    trigger: str
    late: tuple[LateOutput, ...] = ()

    def shape(self) -> QueryShape:
        """What its checkpoint has to fit."""
        return QueryShape(inputs_of(self.frame), operators_of(self.frame), tuple(each.place for each in self.outputs), self.mode)

    @property
    def written(self) -> tuple[Output, ...]:
        """All that it writes to, that of late rows too."""
        return (*self.outputs, *(each.output for each in self.late))

    @property
    def topics_written(self) -> set[str]:
        """Those of its outputs that are topics."""
        return {output.name for output in self.written if output.place == f"topic {output.name}"}

    def of_generation(self, number: int) -> "JobQuery":
        """The query as this generation of the job has it. StreamError."""
        late = tuple(replace(each, output=each.output.of_generation(number)) for each in self.late)
        return replace(self, outputs=tuple(each.of_generation(number) for each in self.outputs), late=late)


def stages(queries: Sequence[JobQuery]) -> list[list[JobQuery]]:
    """The queries in the order in which they feed each other by topics of the job: a run up to the present has to read what it writes.

    Those that feed each other in a circle are in one stage.
    """
    every = set[str]().union(*(query.topics_written for query in queries))
    reads = {query.name: topics_read(query.frame, every) for query in queries}
    feeders = {query.name: {each.name for each in queries if not each.topics_written.isdisjoint(reads[query.name])} for query in queries}
    for _ in queries:  # those that feed a feeder feed too
        feeders = {name: direct.union(*(feeders[each] for each in direct)) for name, direct in feeders.items()}
    left, found = list(queries), []
    while left:
        names = {query.name for query in left}
        stage = [query for query in left if all(query.name in feeders[each] for each in feeders[query.name] & names)]
        found.append(stage)
        left = [query for query in left if query not in stage]
    return found


def must_read_others(job: str, queries: Sequence[JobQuery]) -> None:
    """StreamError for a query that reads, with `job.topic`, what the job writes: in a later generation that is another topic."""
    written = {each.name for query in queries for each in query.written if isinstance(each, TopicOutput)}
    for query in queries:
        for topic in sorted(topics_read(query.frame, written)):
            raise StreamError(
                f"job {job}, query {query.name}: reads topic {topic}, which the job writes: each generation of the job would write another "
                f"one, and read the first one's. Make a job of its own of what reads it"
            )
