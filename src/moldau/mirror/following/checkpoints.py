"""Checkpoints as MirrorMaker 2 writes them, so that Kafka's `RemoteClusterUtils` find where a group continues.

They are in the topic `SOURCE.checkpoints.internal` of the target, in the format of docs/formats/mirror-checkpoints.md. The last record of
a key counts, so one is written only where it differs.
"""

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror import target_topics
from moldau.mirror.state.topic import append
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

VERSION = 0
NO_OFFSET = -1
_CONFIGS = {"cleanup.policy": "compact"}
_VERSION, _OFFSETS, _PARTITION, _LENGTH = struct.Struct(">h"), struct.Struct(">qq"), struct.Struct(">i"), struct.Struct(">h")
_TEXT_BYTES_MAX = 2**15 - 1


class CheckpointKey(NamedTuple):
    """A group's place in a partition of the target."""

    group: str
    partition: TopicPartition

    def encode(self) -> bytes:
        """The key of a record."""
        return _text(self.group) + _text(self.partition.topic) + _PARTITION.pack(self.partition.partition)


class Checkpoint(NamedTuple):
    """Where a group continues."""

    upstream_offset: int
    """In the source; `NO_OFFSET` where it follows from several partitions of it."""
    offset: int
    """In the target."""
    metadata: str

    def encode(self) -> bytes:
        """The value of a record."""
        return _VERSION.pack(VERSION) + _OFFSETS.pack(self.upstream_offset, self.offset) + _text(self.metadata)


def checkpoints_topic(source: str) -> str:
    """The name of a source's topic, by Kafka's `DefaultReplicationPolicy`."""
    return f"{source}.checkpoints.internal"


def _text(text: str) -> bytes:
    data = text.encode()[:_TEXT_BYTES_MAX].decode(errors="ignore").encode()
    return _LENGTH.pack(len(data)) + data


class CheckpointWriter:
    """Writes the checkpoints of one source."""

    def __init__(self, source: str, target: "Brokers", clock: "Clock") -> None:
        self._partition = TopicPartition(checkpoints_topic(source), 0)
        self._target = target
        self._clock = clock
        self._written: dict[CheckpointKey, Checkpoint] = {}
        """Of what there is now."""
        self._exists = False
        self.count = 0
        """Records that were written."""

    async def write(self, checkpoints: Iterable[tuple[CheckpointKey, Checkpoint]]) -> None:
        """These are all that there are now: write those that differ. PeerError, WorldError."""
        now = dict(checkpoints)
        self._written = {key: checkpoint for key, checkpoint in self._written.items() if key in now}
        changed = {key: checkpoint for key, checkpoint in now.items() if self._written.get(key) != checkpoint}
        if not changed:
            return
        if not self._exists:
            await target_topics.create(self._target, target_topics.WantedTopic(self._partition.topic, 1, _CONFIGS))
            self._exists = True
        records = ((key.encode(), checkpoint.encode()) for key, checkpoint in changed.items())
        await append(self._target, self._partition, records, self._clock.time_ms())
        self._written |= changed
        self.count += len(changed)
