"""How far a stream has come: what Spark keeps of it in its checkpoint, as JSON.

    {"flights": {"0": 23, "1": 17, "id": "9f6c..."}}

That is the JSON of Spark's Kafka connector and, beside the partitions of a topic, the topic's id. A topic that is deleted and recreated
has another id: its offsets are those of other records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.model.identity import TopicPartition

_ID = "id"


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The offset that is read next in each partition, and the ids of the topics."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps. Equal offsets give the same text: Spark compares texts to see whether there is anything new."""
        nested: dict[str, Any] = {}
        for partition, offset in sorted(self.offsets.items()):
            nested.setdefault(partition.topic, {})[str(partition.partition)] = offset
        for topic, entries in nested.items():
            if topic in self.ids:
                entries[_ID] = self.ids[topic]
        return nested

    @classmethod
    def from_json(cls, nested: Mapping[str, Any]) -> "StreamOffsets":
        """Read it; a checkpoint that the JVM connector began has no ids."""
        offsets = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, entries in nested.items()
            for number, offset in entries.items()
            if number != _ID
        }
        return cls(offsets, {topic: entries[_ID] for topic, entries in nested.items() if _ID in entries})

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of one topic, sorted."""
        return sorted(partition for partition in self.offsets if partition.topic == topic)
