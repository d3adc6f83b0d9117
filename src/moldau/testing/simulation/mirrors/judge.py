"""Compares what a mirror has written with what its source has, and with what its source has had.

What the target says of itself is looked at first: positions that never fall, and for each record of a topic one run that names where it
comes from, in the source's order. Then each record is the one that readers of committed records see there, and none is missing before the
position. A topic that loses records from its front or its middle has what could be read: nothing that was acknowledged may be missing where
only a front is deleted, and the newest of each key where it is compacted.

A partition that stands still has to have a reason: that it lost records before they were read, that its topic was deleted, or that its log
has lost its end where it may.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.mirror.merge.positions import POSITIONS, Key, Stored
from moldau.mirror.merge.runs import OFFSETS
from moldau.mirror.partitions import Halt
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import EARLIEST, LATEST, SimulatedAdmin
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.mirrors.draining import Ends, drained
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.mirrors.topics import NEWEST, RENEWED, RETAINED, MirroredTopics, life_of
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.workloads.keeping import read_all


class MirrorError(AssertionError):
    """The target is not what a mirror of the source has to be."""


class Bounds(NamedTuple):
    """Where a partition of the source begins and ends for readers of committed records."""

    start: int
    end: int


class Written(NamedTuple):
    """What the target says of one partition of the source."""

    key: Key
    position: int
    offsets: dict[int, int]
    """Offsets of records in the source, in the order of the target, and where each stands there."""


class MirrorJudge:
    """See the module."""

    def __init__(
        self,
        source: Simulation,
        target: Simulation,
        hosts: Sequence[MirrorHost],
        topics: MirroredTopics,
        counts: Mapping[str, int],
        *,
        may_lose: bool,
        begins_at_start: bool,
    ) -> None:
        """`may_lose`: whether logs of the source may have lost what was not synced, which readers have seen. `begins_at_start`: of a
        partition the mirror begins where its log begins then, not at offset 0.
        """
        self._source = source
        self._target = target
        self._hosts = hosts
        self._topics = topics
        self._may_lose = may_lose
        self._begins_at_start = begins_at_start
        self._partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        self._bounds: dict[TopicPartition, Bounds] = {}
        self._ids: dict[str, bytes] = {}
        self.records = 0
        """That were mirrored."""
        self._halts: dict[TopicPartition, Halt] = {}
        """Of partitions that were not read to their end."""

    # The end of the mirror's work

    async def drained(self) -> None:
        """Wait until each partition has been read to its end, or has halted. No client writes any more. NotConvergedError."""
        self._halts = await drained(self._source, self._hosts, self._ends)

    async def _ends(self) -> Ends:
        admin = SimulatedAdmin(self._source.client("surveyor"))
        for partition in self._partitions:
            ends = [await admin.offset(partition, which, committed=True) for which in (EARLIEST, LATEST)]
            self._bounds[partition] = Bounds(*ends)
            self._ids[partition.topic] = (await admin.brokers.topic(partition.topic)).topic_id
        admin.close()
        return {each: (self._ids[each.topic], bounds.end) for each, bounds in self._bounds.items()}

    # The verdict

    async def check(self) -> None:
        """Compare. MirrorError."""
        written = _written(await self._read(POSITIONS), await self._read(OFFSETS))
        by_partition: dict[TopicPartition, list[Written]] = {}
        for topic, each in written:
            by_partition.setdefault(TopicPartition(topic, each.key.partition), []).append(each)
        for partition in self._partitions:
            await self._check(partition, by_partition.get(partition, []))

    async def _read(self, partition: TopicPartition) -> list[SimulatedMessage]:
        return await read_all(self._target.client("judge"), partition, 0)

    async def _check(self, partition: TopicPartition, found: list[Written]) -> None:
        records = {record.offset: record for record in await self._read(partition)}
        with_records = [each for each in found if each.offsets]
        if len(with_records) > 1:
            raise MirrorError(f"{partition}: it has records of several topics of that name")
        written = with_records[0] if with_records else found[0] if found else None
        offsets = {} if written is None else written.offsets
        if list(offsets.values()) != sorted(offsets.values()) or list(offsets) != sorted(offsets):
            raise MirrorError(f"{partition}: records are not in the order of the source")
        if list(offsets.values()) != list(records):
            alone = [offset for offset in records if offset not in offsets.values()] or [
                offset for offset in offsets.values() if offset not in records
            ]
            raise MirrorError(f"{partition}: only one of the target's records and their runs has offset {alone[0]}")
        mirrored = {source: records[target] for source, target in offsets.items()}
        position = 0 if written is None else written.position
        if offsets and max(offsets) >= position:
            raise MirrorError(f"{partition}: the position is {position}, and the record at {max(offsets)} is there")
        self.records += len(mirrored)
        self._check_state(partition, position)
        if written is None or written.key.topic_id == self._ids[partition.topic]:  # else a halt says so
            position = await self._check_records(partition, position, mirrored)
        if partition.topic in (RETAINED, RENEWED):
            self._check_acknowledged(partition, position, mirrored)

    def _check_state(self, partition: TopicPartition, position: int) -> None:
        """A partition is at its end, or stands still for a reason that there is."""
        bounds, halt = self._bounds[partition], self._halts.get(partition)
        match halt:
            case None:
                holds = position >= bounds.end  # it was there when all had been read
            case Halt.RECREATED | Halt.DELETED:
                holds = partition.topic == RENEWED and self._topics.deletions > 0
            case Halt.OUT_OF_RETENTION:
                holds = partition.topic == RETAINED and bounds.start > position
            case Halt.TRUNCATED:
                holds = self._may_lose
            case _:
                holds = False
        if not holds:
            state = "is not halted" if halt is None else f"is halted: {halt.value}"
            raise MirrorError(f"{partition}: {state}, at {position} of {bounds.start} to {bounds.end}")

    async def _check_records(self, partition: TopicPartition, position: int, mirrored: Mapping[int, SimulatedMessage]) -> int:
        """By what readers of the source see now. The offset up to which the source has what was mirrored, at most the position."""
        found = {record.offset: record for record in await read_all(self._source.client("judge"), partition, 0)}
        start = self._bounds[partition].start
        for offset, record in mirrored.items():
            same = found.get(offset)
            if same is None and (offset < start or partition.topic == NEWEST):
                continue
            if same is None or _content(same) != _content(record):
                if self._halts.get(partition) is Halt.TRUNCATED:
                    position = offset
                    break
                there = "nothing" if same is None else _content(same)
                raise MirrorError(f"{partition}: the record of offset {offset} is {_content(record)}, readers of the source see {there}")
        expected = found.values() if partition.topic != NEWEST else {record.key: record for record in found.values()}.values()
        missing = [record.offset for record in expected if record.offset < position and record.offset not in mirrored]
        if missing:
            raise MirrorError(f"{partition}: the record of offset {missing[0]} is missing, the position is {position}")
        return position

    def _check_acknowledged(self, partition: TopicPartition, position: int, mirrored: Mapping[int, SimulatedMessage]) -> None:
        """By what was acknowledged, also if it was deleted since."""
        lives = list(dict.fromkeys(life_of(record.value) for record in mirrored.values())) if partition.topic == RENEWED else []
        if len(lives) > 1:
            raise MirrorError(f"{partition}: it has records of the topic's lives {lives}")
        begun = min(mirrored, default=position) if self._begins_at_start and partition.topic == RETAINED else 0
        for value, offset in self._topics.acknowledged[partition.topic].items():
            if offset < begun:
                continue  # it was deleted before the mirror first looked where the log begins
            if lives != [] and life_of(value) not in lives:
                continue
            if partition.topic == RENEWED and not lives:
                continue  # positions of a topic without records
            if offset < position and offset in mirrored and mirrored[offset].value != value:
                raise MirrorError(f"{partition}: the record of offset {offset} is {mirrored[offset].value!r}, {value!r} was acknowledged")
            if offset < position and offset not in mirrored:
                raise MirrorError(f"{partition}: {value!r} was acknowledged at {offset} and is missing, the position is {position}")


def _content(record: SimulatedMessage) -> tuple[object, ...]:
    return record.key, record.value, list(record.headers or ()), record.timestamp


def _written(positions: list[SimulatedMessage], offsets: list[SimulatedMessage]) -> list[tuple[str, Written]]:
    """What the mirror's own topics say, with the names of the source's topics."""
    found: dict[Key, tuple[str, Written]] = {}
    for record in positions:
        assert record.key is not None, "each has one"
        assert record.value is not None, "none is removed"
        key, stored = Key.decode(record.key), Stored.decode(record.value)
        before = found.get(key)
        if before is not None and stored.position.offset < before[1].position:
            raise MirrorError(f"{stored.topic}-{key.partition}: the position was {before[1].position}, and is {stored.position.offset}")
        found[key] = stored.topic, Written(key, stored.position.offset, {})
    for record in offsets:
        assert record.key is not None, "each has one"
        key = Key.decode(record.key)
        said = json.loads(record.value or b"")
        if key not in found:
            raise MirrorError(f"{said['topic']}-{key.partition}: it has records and no position")
        for first, count, number, target in said["runs"]:
            if number != key.partition:
                raise MirrorError(f"{said['topic']}-{key.partition}: records are in partition {number}")
            for place in range(count):
                if first + place in found[key][1].offsets:
                    raise MirrorError(f"{said['topic']}-{number}: the record of offset {first + place} is there twice")
                found[key][1].offsets[first + place] = target + place
    return list(found.values())
