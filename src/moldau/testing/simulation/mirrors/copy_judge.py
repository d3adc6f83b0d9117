"""Compares the logs of a copy with those of its source, batch by batch, as they are on the disks of the leaders.

Before the cut, or everywhere if the partition was not promoted, the target has the batches of the source: same offsets, leader epochs,
bytes, none left out. Where the source has removed records from its front the copy may have more, and where it has compacted its log the
records that are left are compared. What a process has known to be stored is there. From the cut on there is what clients of the target
have written, and nothing of the source; no transaction is open.
"""

from collections.abc import Mapping, Sequence

from moldau.mirror.partitions import Halt
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.testing.simulation.clients.admin import LATEST, SimulatedAdmin
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.mirrors.judge import MirrorError
from moldau.testing.simulation.mirrors.logs import Log, check_batches, end_of, logs_of_leaders, settled_end
from moldau.testing.simulation.mirrors.operator import VALUE, Promoter
from moldau.testing.simulation.mirrors.topics import NEWEST, RETAINED
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_view import PartitionInTree
from moldau.testing.simulation.workloads.keeping import read_all


class CopyJudge:
    """See the module."""

    def __init__(self, source: Simulation, target: Simulation, promoter: Promoter, *, may_lose: bool) -> None:
        """`may_lose`: whether logs of the source may have lost what was not synced, which the mirror has read."""
        self._source = source
        self._target = target
        self._promoter = promoter
        self._may_lose = may_lose
        self.cuts: dict[TopicPartition, int] = {}
        """Where clients write, of partitions that were promoted."""
        self.batches = 0
        """That were compared."""

    async def check(self, halts: Mapping[TopicPartition, Halt], stored: Mapping[TopicPartition, int]) -> None:
        """Compare. `stored`: up to where a process has known the target to have each partition. MirrorError."""
        sources, targets = logs_of_leaders(self._source), logs_of_leaders(self._target)
        for partition, end in stored.items():
            halt = halts.get(partition)
            self._check_halt(partition, halt)
            found = targets.get(partition)
            if found is None:
                raise MirrorError(f"{partition}: it is not in the target")
            in_tree, log = found
            source = sources[partition][1]
            cut = self._cut(partition, in_tree, source, log)
            if cut is not None:
                self.cuts[partition] = cut
                self.check_written(partition, cut, log)
                await self._check_settled(partition, end_of(log))
            elif end_of(log) < end:
                raise MirrorError(f"{partition}: the target ends at {end_of(log)}, and had acknowledged up to {end}")
            if self._may_lose and (halt is not None or cut is not None or end_of(source) < end_of(log)):
                continue  # the source may have lost what it had, and has written something else there
            mirrored = {offset: batch for offset, batch in log.items() if cut is None or offset < cut}
            self.batches += len(mirrored)
            if partition.topic == NEWEST:
                await self._check_newest(partition, cut)
            else:
                is_whole = halt is None or cut is not None
                check_batches(partition, source, mirrored, end_of(mirrored) if cut is not None or not is_whole else end_of(source))

    def _check_halt(self, partition: TopicPartition, halt: Halt | None) -> None:
        match halt:
            case None:
                holds = True  # it is at its end; of one that was promoted there was nothing more
            case Halt.PROMOTED | Halt.REFUSED:
                # Refused by a process that does not know that the topic was a copy, since no earlier one had reported it.
                holds = partition in self._promoter.cuts
            case Halt.OUT_OF_RETENTION:
                holds = partition.topic == RETAINED
            case Halt.TRUNCATED:
                holds = self._may_lose
            case _:
                holds = False
        if not holds:
            raise MirrorError(f"{partition}: {'is not halted' if halt is None else f'is halted: {halt.value}'}")

    def _cut(self, partition: TopicPartition, in_tree: PartitionInTree, source: Log, log: Log) -> int | None:
        """Where clients write; None if the partition is a mirror's."""
        state = in_tree.state
        assert state is not None, "it has a leader"
        if state.is_mirror:
            return None
        asked = self._promoter.cuts.get(partition)
        if not asked:
            raise MirrorError(f"{partition}: it is no mirror's, and was never promoted")
        said = self._promoter.promoted.get(partition)
        if state.cut is None:
            return asked[-1] if said is None else said
        if self._may_lose:
            return state.cut.offset if said is None else said
        cut = settled_end({**log, **source}, *state.cut)
        if said is not None and said != cut:
            raise MirrorError(f"{partition}: promoted at {said}, and cut at {cut}: {state.cut}")
        return cut

    def check_written(self, partition: TopicPartition, cut: int, log: Log) -> None:
        """What comes from the cut on."""
        found = {
            record.offset: record.value
            for header, data in log.values()
            if header.last_offset >= cut and not header.is_control
            for record in iterate(memoryview(data), max_decompressed_bytes=1 << 20)
        }
        foreign = next((offset for offset, value in found.items() if value is None or not bytes(value).startswith(VALUE)), None)
        if foreign is not None:
            raise MirrorError(f"{partition}: offset {foreign} is of the source, and the cut is at {cut}")
        for offset, value in self._promoter.written.get(partition, {}).items():
            if found.get(offset) != value:
                raise MirrorError(f"{partition}: {value!r} was acknowledged at {offset}, there is {found.get(offset)!r}")

    async def _check_settled(self, partition: TopicPartition, end: int) -> None:
        """No transaction of the source is open in the target for ever."""
        admin = SimulatedAdmin(self._target.client("judge"))
        stable = await admin.offset(partition, LATEST, committed=True)
        admin.close()
        if stable != end:
            raise MirrorError(f"{partition}: it was promoted, and readers of committed records see up to {stable} of {end}")

    async def _check_newest(self, partition: TopicPartition, cut: int | None) -> None:
        """Of a log that the source has compacted: what it has left is in the target, as far as that goes."""
        there, here = [await read_all(cluster.client("judge"), partition, 0) for cluster in (self._source, self._target)]
        end = cut if cut is not None else max((record.offset for record in here), default=-1) + 1
        check_newest(partition, there, here, end)


def check_newest(partition: TopicPartition, source: Sequence[SimulatedMessage], target: Sequence[SimulatedMessage], end: int) -> None:
    """Up to `end` the target has what the source has left, but perhaps not what has a newer record of its key in the source: replicas there
    remove that each at its own time, and the mirror may have read another one.
    """
    newest = {record.key: record.offset for record in source}
    copied = {record.offset: _content(record) for record in target}
    for record in source:
        found = copied.get(record.offset)
        may_lack = found is None and record.offset < newest[record.key]
        if record.offset < end and found != _content(record) and not may_lack:
            raise MirrorError(f"{partition}: offset {record.offset} is {found}, in the source it is {_content(record)}")


def _content(record: SimulatedMessage) -> tuple[object, ...]:
    return record.leader_epoch, record.key, record.value, list(record.headers or ()), record.timestamp
