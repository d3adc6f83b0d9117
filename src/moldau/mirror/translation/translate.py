"""Committed offsets of a source, translated for the target as it is now.

A copy keeps the offsets. For a merge `_mirror_offsets` is read once, however many offsets are asked for, after the positions: all runs of
what is before them are in it then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.mirror import catalog
from moldau.mirror.log_ends import epoch_end
from moldau.mirror.merge.positions import POSITIONS, Key, Stored
from moldau.mirror.merge.runs import OFFSETS, runs_in
from moldau.mirror.merge.stored_positions import read_positions
from moldau.mirror.naming import SourceTopic
from moldau.mirror.partitions import SourcePartition
from moldau.mirror.plan.values import Mode, Partitioning
from moldau.mirror.reading import list_end, list_offset, read_to_end
from moldau.mirror.translation.search import Found, Place, Search, combined
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.mirror.selection import TopicSelection
    from moldau.wire.brokers import Brokers


class SourceOffset(NamedTuple):
    """Where a reader of a source continues."""

    partition: SourcePartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} at {self.offset}"


@dataclass(frozen=True, slots=True)
class Translated:
    """Where it continues in a partition of the target."""

    target: TopicPartition
    sources: tuple[SourceOffset, ...]
    """Those that it follows from."""
    offset: int | None
    """None: it cannot be said, or not yet."""
    reason: str = ""
    """Why it cannot."""


class Answer(NamedTuple):
    """Of one partition of a source."""

    places: Mapping[TopicPartition, Place]
    reason: str = ""


async def translate(
    plan: "MirrorPlan",
    selection: "TopicSelection",
    target: "Brokers",
    sources: Mapping[str, "Brokers"],
    wanted: Mapping[str, Mapping[TopicPartition, int]],
) -> list[Translated]:
    """The offsets in `wanted`, by source, as the target has them; topics that are not mirrored are left out. PeerError, WorldError."""
    cluster_ids: dict[str, str] = {}
    offsets: list[SourceOffset] = []
    for source, mine in wanted.items():
        seen = await catalog.look(sources[source])
        cluster_ids[source] = seen.cluster_id
        topics = set(selection.of(seen.topics))
        for where, offset in sorted(mine.items()):
            if where.topic in topics:
                offsets.append(SourceOffset(SourcePartition(source, seen.topics[where.topic].topic_id, *where), offset))
    existing = (await catalog.look(target)).topics
    counts = {name: seen.partitions for name, seen in existing.items()}
    by_topic = by_target_topic(plan, offsets)
    if plan.mode is Mode.COPY:
        answers = {each: await _of_copy(target, sources[each.partition.source], each, existing) for each in offsets}
    else:
        answers = await _of_merge(plan, target, cluster_ids, by_topic, counts)
    return assembled(plan, by_topic, counts, answers)


def by_target_topic(plan: "MirrorPlan", offsets: Iterable[SourceOffset]) -> dict[str, list[SourceOffset]]:
    """Offsets by the topic of the target that they are translated into. Their names in the target are known to be allowed."""
    found: dict[str, list[SourceOffset]] = {}
    for each in offsets:
        name = plan.names.target(SourceTopic(each.partition.source, each.partition.topic))
        found.setdefault(name, []).append(each)
    return found


def assembled(
    plan: "MirrorPlan",
    by_topic: Mapping[str, list[SourceOffset]],
    counts: Mapping[str, int],
    answers: Mapping[SourceOffset, Answer],
) -> list[Translated]:
    """Offsets of one group in the target, from what is known of each offset in the sources. `counts`: partitions of the target's topics."""
    one_to_one = plan.partitioning is Partitioning.SAME
    found: list[Translated] = []
    for name, of_topic in by_topic.items():
        numbers = {each.partition.number for each in of_topic} if one_to_one else range(counts.get(name, 0))
        for number in sorted(numbers):
            into = tuple(each for each in of_topic if not one_to_one or each.partition.number == number)
            found += _translated(TopicPartition(name, number), into, answers)
    return found


def _translated(target: TopicPartition, into: tuple[SourceOffset, ...], answers: Mapping[SourceOffset, Answer]) -> Iterable[Translated]:
    """None where no record has come into a partition from these."""
    reasons = [answers[each].reason for each in into if answers[each].reason]
    if reasons:
        yield Translated(target, into, None, "; ".join(reasons))
        return
    offset = combined(answers[each].places for each in into).get(target)
    if offset is not None:
        yield Translated(target, into, offset)


async def _of_copy(target: "Brokers", source: "Brokers", wanted: SourceOffset, existing: Mapping[str, catalog.SeenTopic]) -> Answer:
    """Offsets name the same records as far as the target's log has the source's epochs; after a promotion it has others from the cut on."""
    partition = wanted.partition.topic_partition
    seen = existing.get(partition.topic)
    if seen is None or partition.partition >= seen.partitions:
        return Answer({}, f"{partition} is not in the target yet")
    end = await list_offset(target, partition, LATEST, committed=True)
    _, epoch = await list_end(source, partition)
    of_source = await epoch_end(target, partition, epoch) if epoch >= 0 else -1
    if 0 <= of_source < min(wanted.offset, end):
        return Answer(
            {}, f"{wanted.partition} is in the target up to {of_source}, from there on {partition} has other records than the source"
        )
    if wanted.offset > end:
        return Answer({}, f"{wanted.partition} is mirrored up to {end}, not up to {wanted.offset} yet")
    return Answer({partition: Place(wanted.offset, is_record=wanted.offset < end)})


async def _of_merge(
    plan: "MirrorPlan",
    target: "Brokers",
    cluster_ids: Mapping[str, str],
    by_topic: Mapping[str, list[SourceOffset]],
    counts: Mapping[str, int],
) -> dict[SourceOffset, Answer]:
    keys = {
        each: Key(plan.name, cluster_ids[each.partition.source], each.partition.topic_id, each.partition.number)
        for of_topic in by_topic.values()
        for each in of_topic
    }
    stable: dict[TopicPartition, int] = {}
    for name, of_topic in by_topic.items():
        for number in {each.partition.number for each in of_topic if each.partition.number < counts.get(name, 0)}:
            stable[TopicPartition(name, number)] = await list_offset(target, TopicPartition(name, number), LATEST, committed=True)
    if POSITIONS.topic not in counts:
        return {each: Answer({}, f"nothing of {each.partition} is mirrored yet") for each in keys}
    positions = await read_positions(target)
    searches = {each: Search(each.offset) for each in keys}
    by_key: dict[bytes, list[Search]] = {}
    for each, key in keys.items():
        by_key.setdefault(key.encode(), []).append(searches[each])
    is_whole = await list_offset(target, OFFSETS, EARLIEST) == 0
    async for record in read_to_end(target, OFFSETS):
        for search in by_key.get(record.key or b"", ()):
            try:
                search.add(runs_in(record))
            except ValueError as error:
                raise WorldError(str(error), retriable=False) from error
    answers: dict[SourceOffset, Answer] = {}
    for each, key in keys.items():
        name = plan.names.target(SourceTopic(each.partition.source, each.partition.topic))
        end = stable.get(TopicPartition(name, each.partition.number))
        at_end = {} if end is None else {TopicPartition(name, each.partition.number): Place(end, is_record=False)}
        answers[each] = of_partition(each, positions.get(key), searches[each].found(), at_end, is_whole=is_whole)
    return answers


def of_partition(
    wanted: SourceOffset, stored: Stored | None, found: Found, at_end: Mapping[TopicPartition, Place], *, is_whole: bool
) -> Answer:
    """What is known of an offset in the source of a merge.

    `at_end`: the place of one that has read everything; `is_whole`: no runs were ever deleted.
    """
    if stored is None:
        return Answer({}, f"nothing of {wanted.partition} is mirrored yet")
    position = stored.position.offset
    if wanted.offset > position:
        return Answer({}, f"{wanted.partition} is mirrored up to {position}, not up to {wanted.offset} yet")
    if found.first < 0 and (is_whole or wanted.offset == position):
        return Answer(at_end)
    if not is_whole and (found.first < 0 or wanted.offset < found.first):
        kept = "no run" if found.first < 0 else f"no run before offset {found.first}"
        return Answer({}, f"{OFFSETS.topic} keeps {kept} of {wanted.partition} any more, the group is at {wanted.offset}")
    return Answer(found.places)
