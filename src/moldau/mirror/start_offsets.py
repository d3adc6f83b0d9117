"""Start offsets of a mirror's file that the logs of a source do not reach: such a partition waits until its log is that long."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.ends import ends_of
from moldau.mirror.merge.positions import POSITIONS, Key
from moldau.mirror.merge.stored_positions import read_positions
from moldau.mirror.plan.start import FromOffset, Start
from moldau.mirror.plan.values import Mode
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.mirror.catalog import Catalog
    from moldau.mirror.operator import Operator


class Beyond(NamedTuple):
    """A partition that starts after the end of its log."""

    partition: TopicPartition
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition} starts at {self.start} and ends at {self.end}"


def unknown(start: Start, source: "Catalog", topics: Iterable[str]) -> Iterator[str]:
    """Topics and partitions for which the file has a start, and which the source does not have. `topics`: those that are mirrored."""
    mirrored = set(topics)
    for topic, starts in start.topics.items():
        if topic not in source.topics:
            if topic not in source.denied:
                yield f"topic {topic}"
        elif topic in mirrored:
            count = source.topics[topic].partitions
            yield from (f"partition {topic}-{number}" for number in starts.partitions if number >= count)


async def beyond_the_end(operator: "Operator", source: str, catalog: "Catalog", target: "Catalog", topics: Iterable[str]) -> list[Beyond]:
    """Those of the partitions that this mirror has not mirrored before. PeerError, WorldError."""
    plan = operator.plan
    (start,) = (each.start for each in plan.sources if each.name == source)
    starts: dict[TopicPartition, int] = {}
    for topic in topics:
        for number in range(catalog.topics[topic].partitions):
            point = start.of(topic, number)
            if isinstance(point, FromOffset):
                starts[TopicPartition(topic, number)] = point.offset
    if not starts:
        return []
    ends = await operator.of_source(source, ends_of(operator.sources[source], starts, committed=plan.mode is Mode.MERGE))
    found = [Beyond(each, starts[each], end) for each, end in ends.items() if starts[each] > end]
    mirrored = await _mirrored(operator, catalog, target, [each.partition for each in found]) if found else set()
    return sorted(each for each in found if each.partition not in mirrored)


async def _mirrored(operator: "Operator", catalog: "Catalog", target: "Catalog", partitions: list[TopicPartition]) -> set[TopicPartition]:
    """Those that continue where they were, whatever the file has as their start."""
    plan = operator.plan
    if plan.mode is Mode.MERGE:
        if POSITIONS.topic not in target.topics:
            return set()
        stored = await operator.of_target(read_positions(operator.target))
        return {
            each for each in partitions if Key(plan.name, catalog.cluster_id, catalog.topics[each.topic].topic_id, each.partition) in stored
        }
    there = [each for each in partitions if each.topic in target.topics and each.partition < target.topics[each.topic].partitions]
    ends = await operator.of_target(ends_of(operator.target, there, committed=False))
    return {each for each, end in ends.items() if end > 0}
