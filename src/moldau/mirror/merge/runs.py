"""Which offset each record has got, and which clusters it has been in: `_mirror_offsets` of the target, in the same transactions.

JSON; a record for each partition of a source and each chain of clusters that a transaction has, and several where it has many runs::

    key     {"mirror", "cluster", "topic_id", "partition"}
    value   {"topic", "origins": [cluster id, ...], "runs": [[first offset, records, partition, first offset in the target], ...]}

`cluster` is the id of the source cluster, the first offset of a run is there; `topic` is the target's. `origins` are the clusters that the
records were in before that source, the oldest first; none for records that were produced there.
"""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.merge.outgoing import Outgoing
from moldau.mirror.merge.positions import Key
from moldau.mirror.merge.state_batch import KeysAndValues, json_bytes, state_batches
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.protocol.records.record import Record

OFFSETS = TopicPartition("_mirror_offsets", 0)
CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3_600_000), "max.message.bytes": str(16 * 1024 * 1024)}
"""Of the topic when it is made. A transaction of small batches has many runs."""

RUNS_MAX = 10_000
"""Of a partition of a source in one batch: some hundred KiB. Where keys choose partitions each record may be a run."""

Chain = tuple[str, ...]
"""Ids of the clusters that a record has been in, the oldest first."""


class StoredRun(NamedTuple):
    """Records with offsets one after the other, in the source and in the target."""

    first: int
    """Offset in the source."""
    records: int
    partition: int
    """Of the target's topic."""
    target: int
    """The first offset there."""

    @property
    def end(self) -> int:
        """After the last offset in the source."""
        return self.first + self.records

    @property
    def target_end(self) -> int:
        """After the last offset in the target."""
        return self.target + self.records


class StoredRuns(NamedTuple):
    """What a record of `_mirror_offsets` says."""

    key: Key
    topic: str
    """Of the target."""
    origins: Chain
    runs: tuple[StoredRun, ...]

    @property
    def chain(self) -> Chain:
        """The clusters that these records were in before this one."""
        return *self.origins, self.key.cluster


def offsets_batches(written: Iterable[tuple[Key, Sequence[Outgoing]]], now_ms: int) -> list[Outgoing]:
    """Batches of `_mirror_offsets`, from what was written of each partition.

    Who reads one has all runs of its partitions between the first offset in it and the last, of all chains.
    """
    return state_batches(OFFSETS, (group for key, batches in written for group in _groups(key, batches)), now_ms)


def _groups(key: Key, batches: Sequence[Outgoing]) -> Iterable[KeysAndValues]:
    by_chain: dict[Chain, list[Outgoing]] = {}
    for batch in batches:
        by_chain.setdefault(batch.origins, []).append(batch)
    runs = [(run, origins) for origins, mine in by_chain.items() for run in _runs(mine)]
    if len(runs) > RUNS_MAX:
        runs.sort()
    for start in range(0, len(runs), RUNS_MAX):
        some: dict[Chain, list[StoredRun]] = {}
        for run, origins in runs[start : start + RUNS_MAX]:
            some.setdefault(origins, []).append(run)
        values = ({"topic": batches[0].target.topic, "origins": origins, "runs": mine} for origins, mine in some.items())
        yield [(key.encode(), json_bytes(value)) for value in values]


def runs_in(record: "Record") -> StoredRuns:
    """What a record of `_mirror_offsets` says. ValueError, which names its offset."""
    try:
        key, found = Key.decode(record.key or b""), json.loads(record.value or b"")
        runs = tuple(StoredRun(*map(int, run)) for run in found["runs"])
        return StoredRuns(key, str(found["topic"]), tuple(map(str, found["origins"])), runs)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{OFFSETS}, offset {record.offset}: not the runs of a transaction: {error}") from error


def _runs(batches: Iterable[Outgoing]) -> list[StoredRun]:
    found: list[StoredRun] = []
    for batch in batches:
        target = batch.base_offset
        for first, records in batch.runs:
            last = found[-1] if found else None
            if last is not None and (last.end, last.partition, last.target_end) == (first, batch.target.partition, target):
                found[-1] = last._replace(records=last.records + records)
            else:
                found.append(StoredRun(first, records, batch.target.partition, target))
            target += records
    return found
