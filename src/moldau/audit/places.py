"""Where an auditor continues, as its group's offsets have it, and which of them are missing. Pure.

With each offset stands a note: the id of the topic that it is of, and how many of the topic's partitions, from the first on, had offsets
beside it: ``f81d4fae7dec11d0a76500a0c91e6bf6/3``. So an offset is never taken for one of another topic that was made under the same name,
and a partition whose offset has expired is distinguished from one that is new.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from moldau.client.groups import GroupOffset
from moldau.client.metadata import NO_TOPIC_ID, TopicMetadata
from moldau.model.identity import TopicPartition

_NOTE = re.compile(r"([0-9a-f]{32})/([0-9]{1,9})\0?")


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The offset that comes next in a partition, and of which topic; `partitions` is 0 where that is not known."""

    offset: int
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = 0

    @classmethod
    def of(cls, committed: GroupOffset) -> Self:
        """As it was committed; whoever sets offsets by hand leaves no note."""
        found = _NOTE.fullmatch(committed.metadata)
        return cls(committed.offset) if found is None else cls(committed.offset, bytes.fromhex(found[1]), int(found[2]))

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it is of the topic with this id, as far as anybody can know."""
        return NO_TOPIC_ID in (self.topic_id, topic_id) or self.topic_id == topic_id


def notes(offsets: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, str]:
    """What is committed beside these offsets; the ids are those of the topics that they are of."""
    known = {where: topic_ids[where] for where in offsets if where in topic_ids}
    counts: dict[tuple[str, bytes], int] = {}
    for topic, topic_id in {(where.topic, topic_id) for where, topic_id in known.items()}:
        count = 0
        while known.get(TopicPartition(topic, count)) == topic_id:
            count += 1
        counts[topic, topic_id] = count
    return {where: f"{topic_id.hex()}/{counts[where.topic, topic_id]}" for where, topic_id in known.items()}


def missing(places: Mapping[TopicPartition, ReadPosition], topic: TopicMetadata) -> list[TopicPartition]:
    """Partitions of a topic without an offset, though there was one once; all of them where nothing is known of the topic."""
    partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    known = {where: places[where] for where in partitions if where in places and places[where].is_of(topic.id)}
    count = max((each.partitions for each in known.values()), default=len(partitions))
    return [where for where in partitions if where not in known and where.partition < count]
