"""What a merge writes beside the records, in the same transactions: where it reads next, and which offset each record has got.

Both are JSON, in topics of the target::

    _mirror_positions   key     {"mirror", "cluster", "topic_id", "partition"}
                        value   {"offset", "epoch", "topic", "instance"}
    _mirror_offsets     key     the same
                        value   {"topic", "runs": [[first offset in the source, records, partition, first offset in the target], ...]}

`_mirror_positions` is compacted: its last record for a key counts. `cluster` is the id of the source cluster, `topic_id` hexadecimal,
`instance` the name of the process that wrote it; the `topic` of positions is the source's, that of offsets the target's.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.mirror.merge.outgoing import Outgoing
from moldau.mirror.partitions import Position
from moldau.model.identity import TopicPartition
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import peek_header
from moldau.protocol.records.record import Record

POSITIONS = TopicPartition("_mirror_positions", 0)
OFFSETS = TopicPartition("_mirror_offsets", 0)


class Key(NamedTuple):
    """A partition of a source, as every process of a mirror names it."""

    mirror: str
    cluster: str
    topic_id: bytes
    partition: int

    def encode(self) -> bytes:
        """The key of a record."""
        return _json({"mirror": self.mirror, "cluster": self.cluster, "topic_id": self.topic_id.hex(), "partition": self.partition})

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

    def encode(self) -> bytes:
        """The value of a record."""
        return _json({"offset": self.position.offset, "epoch": self.position.epoch, "topic": self.topic, "instance": self.instance})

    @staticmethod
    def decode(data: bytes) -> "Stored":
        """ValueError."""
        try:
            found = json.loads(data)
            return Stored(Position(int(found["offset"]), int(found["epoch"])), str(found["topic"]), str(found["instance"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a position: {data[:200]!r}") from error


def positions_batch(positions: Iterable[tuple[Key, Stored]], now_ms: int) -> Outgoing:
    """A batch of `_mirror_positions`."""
    return _batch(POSITIONS, ((key.encode(), stored.encode()) for key, stored in positions), now_ms)


def offsets_batch(written: Iterable[tuple[Key, Sequence[Outgoing]]], now_ms: int) -> Outgoing:
    """A batch of `_mirror_offsets`, from what was written of each partition."""
    return _batch(
        OFFSETS,
        ((key.encode(), _json({"topic": batches[0].target.topic, "runs": list(_runs(batches))})) for key, batches in written),
        now_ms,
    )


def stored_in(record: Record) -> tuple[Key, Stored | None]:
    """What a record of `_mirror_positions` says. ValueError, which names its offset."""
    try:
        return Key.decode(record.key or b""), None if record.value is None else Stored.decode(record.value)
    except ValueError as error:
        raise ValueError(f"{POSITIONS}, offset {record.offset}: {error}") from error


def _runs(batches: Sequence[Outgoing]) -> Iterable[list[int]]:
    for batch in batches:
        target = batch.base_offset
        for run in batch.runs:
            yield [run.first, run.records, batch.target.partition, target]
            target += run.records


def _batch(target: TopicPartition, records: Iterable[tuple[bytes, bytes]], now_ms: int) -> Outgoing:
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(now_ms, key, value)
    data = memoryview(bytearray(builder.build()))
    return Outgoing(target, data, peek_header(data), [])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
