"""The topics and tables of a generation: made like those of the current one, and where one ends and the other continues."""

from collections.abc import Iterable, Sequence

from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.client.partition_requests import LATEST
from moldau.lake.tables.opening import format_of, open_table
from moldau.model.config.definition import ConfigSource
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.streams.errors import StreamError
from moldau.streams.generations import OutputPlace, name_in
from moldau.streams.outputs import Output
from moldau.streams.reports import JobReport

TOPIC, TABLE = "topic", "table"


class Places:
    """Of the outputs of a job, given as those of the generation that is made. WorldError, PeerError, StreamError."""

    def __init__(self, cluster: Cluster, job: str, outputs: Sequence[Output], current: int) -> None:
        self._cluster, self._job, self._outputs, self._current = cluster, job, outputs, current

    def must_be_new(self, number: int) -> None:
        """StreamError for a topic or a table that is there before the generation is."""
        for kind, _, place in self._named(number):
            if format_of(place) is not None if kind == TABLE else self._partitions(place) is not None:
                raise StreamError(
                    f"job {self._job}: {kind} {place} exists already, and generation {number} would write to it: remove it first"
                )

    def make(self, number: int) -> None:
        """Make the topics that are missing, with partitions, replicas and settings of those of the current generation."""
        for kind, name, place in self._named(number):
            if kind != TOPIC or self._partitions(place) is not None:
                continue
            like = next((each for each in (name_in(name, self._current), name) if self._partitions(each) is not None), None)
            if like is None:
                raise StreamError(f"there is no topic {name}, and {place} is made like it: moldau topic create {name} makes it")
            partitions = self._cluster.topic(like).partitions
            configs = {
                each.name: each.value
                for each in Admin(self._cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, like))
                if each.source is ConfigSource.DYNAMIC_TOPIC and each.value is not None
            }
            try:
                Admin(self._cluster).create_topic(place, len(partitions), len(partitions[0].replicas), configs)
            except RequestFailedError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def ended(self, old: JobReport, generation: int) -> list[OutputPlace]:
        """The places of the generation that ends, with their ends."""
        suffix = name_in("", generation)
        found = []
        for kind, _, place in (each.partition(" ") for query in old.queries for each in query.outputs):
            name = place.removesuffix(suffix) if suffix else place
            found.append(OutputPlace(name, kind, place, generation, {}, self._end(kind, place)))
        return found

    def continued(self, number: int, *, whole: bool) -> list[OutputPlace]:
        """The places of the generation that begins: with `whole` all of it belongs to the job's output, otherwise what follows from now."""
        return [
            OutputPlace(name, kind, place, number, {} if whole else self._end(kind, place)) for kind, name, place in self._named(number)
        ]

    def _named(self, number: int) -> Iterable[tuple[str, str, str]]:
        """Kind, name in the job's file, and place."""
        suffix = name_in("", number)
        for output in self._outputs:
            kind, _, place = output.place.partition(" ")
            yield kind, place.removesuffix(suffix) if suffix else place, place

    def _end(self, kind: str, place: str) -> dict[str, int]:
        if kind == TABLE:
            snapshot = open_table(place)
            return {} if snapshot is None else {"version": snapshot.version}
        count = self._partitions(place) or 0
        found = self._cluster.list_offsets({TopicPartition(place, number): LATEST for number in range(count)}) if count else {}
        return {str(partition.partition): listed.offset for partition, listed in found.items()}

    def _partitions(self, topic: str) -> int | None:
        known = self._cluster.metadata([topic]).topics[topic]
        return None if known.error else len(known.partitions)
