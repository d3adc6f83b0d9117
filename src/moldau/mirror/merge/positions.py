"""Where a merge reads next: `_mirror_positions` of the target, compacted, in the same transactions as the records.

JSON; the last record of a key counts::

    key     {"mirror", "cluster", "topic_id", "partition"}
    value   {"offset", "epoch", "topic", "instance", "runs_from"}

`cluster` is the id of the source cluster, `topic_id` hexadecimal, `topic` the source's, `instance` the name of the process that wrote it.
`runs_from` is an offset in `_mirror_offsets` of the source: runs before it are of records before this position; -1 if it is not known.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from moldau.mirror.merge.outgoing import Outgoing
from moldau.mirror.merge.state_batch import json_bytes, state_batches
from moldau.mirror.partitions import Position
from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Record

POSITIONS = TopicPartition("_mirror_positions", 0)


class Key(NamedTuple):
    """A partition of a source, as every process of a mirror names it."""

    mirror: str
    cluster: str
    topic_id: bytes
    partition: int

    def encode(self) -> bytes:
        """The key of a record."""
        return json_bytes({"mirror": self.mirror, "cluster": self.cluster, "topic_id": self.topic_id.hex(), "partition": self.partition})

    @staticmethod
    def decode(data: bytes) -> "Key":
        """ValueError."""
        try:
            found = json.loads(data)
            return Key(str(found["mirror"]), str(found["cluster"]), bytes.fromhex(found["topic_id"]), int(found["partition"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the key of a position: {data[:200]!r}") from error


class Stored(NamedTuple):
    """Where a partition is read next, and who wrote that."""

    position: Position
    topic: str
    instance: str
    runs_from: int = -1
    """Where to read `_mirror_offsets` of the source for what comes; -1: from its beginning."""

    def encode(self) -> bytes:
        """The value of a record."""
        offset, epoch = self.position
        return json_bytes({"offset": offset, "epoch": epoch, "topic": self.topic, "instance": self.instance, "runs_from": self.runs_from})

    @staticmethod
    def decode(data: bytes) -> "Stored":
        """ValueError."""
        try:
            found = json.loads(data)
            position = Position(int(found["offset"]), int(found["epoch"]))
            return Stored(position, str(found["topic"]), str(found["instance"]), int(found.get("runs_from", -1)))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a position: {data[:200]!r}") from error


def positions_batches(positions: Iterable[tuple[Key, Stored]], now_ms: int) -> list[Outgoing]:
    """Batches of `_mirror_positions`."""
    return state_batches(POSITIONS, ([(key.encode(), stored.encode())] for key, stored in positions), now_ms)


def stored_in(record: Record) -> tuple[Key, Stored | None]:
    """What a record of `_mirror_positions` says. ValueError, which names its offset."""
    try:
        return Key.decode(record.key or b""), None if record.value is None else Stored.decode(record.value)
    except ValueError as error:
        raise ValueError(f"{POSITIONS}, offset {record.offset}: {error}") from error
