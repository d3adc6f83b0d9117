"""Bugs of a merge that are planted to prove that simulated mirrors find them."""

from struct import Struct
from typing import Any

from moldau.broker.replicas.partition_events import KeepEpochs
from moldau.fetching.events import Moved, StartAt
from moldau.mirror.leader import end_of
from moldau.mirror.merge.positions import positions_batches
from moldau.mirror.partitions import Position, SourcePartition
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.records.batch import batches
from moldau.protocol.records.header import LEADER_EPOCH_OFFSET
from moldau.testing.simulation.mirrors.fleet import mirror_options_of
from moldau.testing.simulation.mirrors.trial import run_mirror_trial
from moldau.testing.simulation.mutant import Function, Mutant

MIRROR_SEEDS_MAX = 200
_EPOCH = Struct(">i")


def mirror_seeds_until_found(mutant: Mutant, first: int) -> int | None:
    """How many seeds from `first` on it takes until a run is not clean; None if `MIRROR_SEEDS_MAX` do not find the bug."""
    with mutant.planted():
        for count in range(1, MIRROR_SEEDS_MAX + 1):
            if run_mirror_trial(mirror_options_of(first + count - 1)).failures:
                return count
    return None


def _position_before_data(real: Function) -> Function:
    async def transaction(self: Any) -> None:
        coming = [(part, part.fetched[-1][1].position) for part in (self._parts[each] for each in self._waiting) if part.fetched]
        if coming:
            stored = ((part.given.key, self._stored(_Portion(part, position))) for part, position in coming)
            await self._writer.write(positions_batches(stored, self._clock.time_ms()))
            await self._writer.commit()
        await real(self)

    return transaction


class _Portion:
    """What is about to be written of a partition."""

    def __init__(self, part: Any, position: Position) -> None:
        self.part = part
        self.position = position


def _jump_over_a_gap(real: Function) -> Function:
    def carry_out(self: Any, effect: Any, answer: Any) -> None:
        followed = self._owner.followed(effect.topic_partition) if isinstance(effect, StartAt) else None
        if followed is None:
            real(self, effect, answer)
            return
        followed.position = Position(effect.offset)
        self.step(Moved(effect.topic_partition, end_of(followed.position)))

    return carry_out


class _Renamed(SourcePartition):
    """A partition that is fetched by the id that its topic has now, and taken for what it was."""

    @property
    def topic_id(self) -> bytes:
        """That of now."""
        return self.now  # type: ignore[attr-defined, no-any-return]


def _ignore_topic_ids(real: Function) -> Function:
    def learn(self: Any, found: Any) -> None:
        for each in self._followed.values():
            if each.partition.topic == found.name and not found.error_code and each.partition.topic_id != found.topic_id:
                each.partition = _Renamed(*each.partition)
                each.partition.now = found.topic_id
                self._leave(each)
        real(self, found)

    return learn


def _no_fence(_real: Function) -> Function:
    async def fence(self: Any, *_: Any) -> None:
        pass

    return fence


def _mirror_aborted(real: Function) -> Function:
    def portion(self: Any, part: Any, taken: Any) -> Any:
        return real(self, part, [each._replace(fetched=each.fetched._replace(aborted=())) for each in taken])

    return portion


def _do_not_wait(real: Function) -> Function:
    async def ask(brokers: Any, partition: Any, api_key: Any, request: Any, *others: Any) -> Any:
        if isinstance(request, FetchRequest):
            request.isolation_level = 0
        return await real(brokers, partition, api_key, request, *others)

    return ask


def _ignore_chains(_real: Function) -> Function:
    def chain(self: Any, _partition: Any, _header: Any) -> tuple[str, ...]:
        return ()

    return chain


def _read_origins_once(real: Function) -> Function:
    def is_settled(self: Any, partition: Any, batches: Any) -> bool:
        return bool(self.rounds or real(self, partition, batches))

    return is_settled


def _announce_late(real: Function) -> Function:
    async def announce(self: Any, producer_id: int, clusters: Any) -> None:
        before, self.late = getattr(self, "late", None), (producer_id, clusters)
        if before is not None:
            await real(self, *before)

    return announce


def _no_cut(real: Function) -> Function:
    async def alter(brokers: Any, wanted: Any) -> Any:
        return await real(brokers, {partition: each._replace(cut=None) for partition, each in wanted.items()})

    return alter


def _leave_transactions_open(_real: Function) -> Function:
    def cut_end(log: Any, cut: Any) -> int | None:
        return cut.offset if log.end_up_to_epoch(cut.epoch) > cut.offset else None

    return cut_end


def _part_by_offsets(real: Function) -> Function:
    def divergence(former: Any, promoted: Any) -> Any:
        found = real(former, promoted)
        offset = min(former[-1].end, promoted[-1].end)
        return found._replace(offset=offset, cut=None if found.cut is None else found.cut._replace(offset=offset))

    return divergence


def _keep_before_the_fence(real: Function) -> Function:
    async def kept_before(_partition: Any, _offset: int, _end: int) -> str:
        return "before"

    async def follow(self: Any, partitions: Any, keep: Any, *, discards: bool) -> Any:
        if keep is None:
            return await real(self, partitions, keep, discards=discards)
        for each in await self.compare(partitions):
            if each.offset < each.end:
                await keep(each.partition, each.offset, each.end)
        return await real(self, partitions, kept_before, discards=discards)

    return follow


def _own_epoch(real: Function) -> Function:
    def carry_out(self: Any, hosted: Any, effects: Any) -> None:
        effects = list(effects)
        real(self, hosted, effects)
        if any(isinstance(effect, KeepEpochs) for effect in effects):
            hosted.log._epochs.assign(hosted.machine.leader_epoch, hosted.log.log_end_offset)

    return carry_out


def _stamp_own_epoch(real: Function) -> Function:
    def append(partition: Any, records: Any, now_ms: int, before_holes: Any) -> Any:
        stamped = bytearray(records)
        for _, batch in batches(memoryview(stamped)):
            _EPOCH.pack_into(batch, LEADER_EPOCH_OFFSET, partition.machine.leader_epoch)
        return real(partition, memoryview(stamped), now_ms, before_holes)

    return append


def _skip_what_failed(real: Function) -> Function:
    def failed(self: Any, part: Any, error: Any) -> None:
        position = self._readers[part.partition.source].position(part.partition)
        if position is not None:
            part.given = part.given._replace(accepted=position.offset)
        real(self, part, error)

    return failed


class _Connections:
    """Brokers to which requests go by several connections in turn."""

    def __init__(self, brokers: Any) -> None:
        self._brokers = brokers
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._brokers, name)

    async def connection(self, address: Any, name: str) -> Any:
        """One of three."""
        self._count += 1
        return await self._brokers.connection(address, f"{name}-{self._count % 3}")


def _send_before_the_answer(_real: Function) -> Function:
    def schedule(self: Any, outlet: Any) -> None:
        if not isinstance(self._brokers, _Connections):
            self._brokers = _Connections(self._brokers)
        self._ready[outlet] = None
        self._work.set()

    return schedule


MIRROR_MUTANTS = (
    Mutant("write positions before their records", "moldau.mirror.merge.merge:Merge._transaction", _position_before_data),
    Mutant("jump over what retention has deleted", "moldau.mirror.leader:LeaderReader._carry_out", _jump_over_a_gap),
    Mutant("resume on a topic that was made again", "moldau.mirror.source:SourceReader._learn", _ignore_topic_ids),
    Mutant("commit without the fence", "moldau.mirror.merge.writer:Writer.fence", _no_fence),
    Mutant("mirror aborted records", "moldau.mirror.merge.merge:Merge._portion", _mirror_aborted),
    Mutant("read positions without waiting for open transactions", "moldau.mirror.reading:ask_leader", _do_not_wait),
    Mutant("return records, whatever clusters they were in", "moldau.mirror.merge.origins:Origins.chain", _ignore_chains),
    Mutant("read only once where records come from", "moldau.mirror.merge.origins:Origins.is_settled", _read_origins_once),
    Mutant("announce a producer after its first records", "moldau.mirror.merge.announcements:Announcer.announce", _announce_late),
    Mutant("promote without the cut", "moldau.mirror.altering:alter", _no_cut),
    Mutant(
        "leave transactions open whose markers the cut has dropped", "moldau.broker.replicas.manager:_cut_end", _leave_transactions_open
    ),
    Mutant("fail back by the ends of logs, not by their epochs", "moldau.mirror.fail_back:divergence", _part_by_offsets),
    Mutant("keep what fail-back drops before writes are refused", "moldau.mirror.fail_back:FailBack.follow", _keep_before_the_fence),
    Mutant("begin an epoch of its own in a mirrored log", "moldau.broker.replicas.manager:ReplicaManager._carry_out", _own_epoch),
    Mutant("write its own epoch into the batches of a mirror", "moldau.broker.handlers.produce.mirrored:append_mirrored", _stamp_own_epoch),
    Mutant("skip batches that were not stored", "moldau.mirror.copy.copy:Copy._failed", _skip_what_failed),
    Mutant("send batches before those before them are stored", "moldau.mirror.copy.writer:CopyWriter._schedule", _send_before_the_answer),
)
