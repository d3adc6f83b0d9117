"""Fail-back of a copy that was promoted, while brokers and processes of the mirror are killed and stand still.

Both clusters have healed before, and what clients have seen of the source is judged: the fail-back drops what was never mirrored. Clients
write to the promoted cluster meanwhile, and some still to its former source, until that refuses it. In the end that has the batches of the
promoted cluster; and what it had beyond the point where the logs parted is in the files of the command, or is what the command has shown.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from moldau.client.failures import SendError
from moldau.client.message import Message
from moldau.mirror.fail_back import FailBack, State
from moldau.mirror.keeping import RecordKeeper
from moldau.mirror.partitions import Halt
from moldau.model.errors import PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.testing.simulation.clients.admin import EARLIEST, LATEST, SimulatedAdmin
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.mirrors.copy_judge import CopyJudge, check_newest
from moldau.testing.simulation.mirrors.draining import Ends, drained
from moldau.testing.simulation.mirrors.judge import MirrorError
from moldau.testing.simulation.mirrors.logs import Log, check_batches, end_of, log_of, logs_of_leaders
from moldau.testing.simulation.mirrors.operator import Promoter
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.mirrors.topics import DELIVERY_S, KEYS, NEWEST
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.options import log_uniform
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import wait_for
from moldau.testing.simulation.workloads.keeping import read_all
from moldau.testing.simulation.workloads.recording import pause
from moldau.wire.brokers import Brokers

STRIKE_S = 2.0
"""Mean time between two strikes."""
STRUCK_S = 2.0, 20.0
"""So long after the first command there are strikes."""
DOWN_S = 0.01, 4.0
PAUSE_S = 0.05, 10.0
LIMIT_S = 900.0
LOOKED_S = 120.0
"""By then every process has looked at the topics of both clusters again."""
LATE_S = 0.02
"""Mean time between two records that clients still write to the former source: so short that some come while the command runs."""
LATE = b"late/"
"""What values begin with that clients still write to the former source."""


class FailBackPhase:
    """See the module."""

    def __init__(
        self,
        clusters: tuple[Simulation, Simulation],
        nemeses: Sequence[Nemesis],
        hosts: Sequence[MirrorHost],
        promoter: Promoter,
        judge: CopyJudge,
    ) -> None:
        """`clusters`: the former source and the promoted target. `hosts`: of the mirror from the target to the source."""
        source, target = clusters
        self._source = source
        self._target = target
        self._keepers = [
            keeper
            for cluster, nemesis in zip(clusters, nemeses, strict=True)
            for keeper in nemesis.keepers
            if keeper.host not in cluster.gone
        ]
        self._hosts = hosts
        self._promoter = promoter
        self._judge = judge
        self._random = source.random("fail-back")
        self._context = source.client("operator")
        self._keeps = self._random.random() < 0.7
        """Whether the command writes what was never mirrored to files."""
        self._shown: dict[TopicPartition, tuple[int, int]] = {}
        """The offsets of each partition that a command has shown as lost."""
        self._before: Mapping[TopicPartition, Log] = {}
        """The source's logs, before anything is changed."""
        self._late: dict[TopicPartition, dict[int, bytes]] = {}
        """What the source has acknowledged to clients since then, by offset."""
        self._is_over = False
        self.batches = 0
        """That were compared in the end."""

    @staticmethod
    async def possible(source: Simulation, cuts: Mapping[TopicPartition, int], topics: Mapping[str, int]) -> dict[str, int]:
        """The topics whose partitions were all promoted, and have records left from before the cut: all others are refused."""
        admin, starts = SimulatedAdmin(source.client("surveyor")), {}
        for partition in cuts:
            starts[partition] = await admin.offset(partition, EARLIEST, committed=False)
        admin.close()
        able = {partition for partition, cut in cuts.items() if starts[partition] < cut or starts[partition] == 0}
        return {name: count for name, count in topics.items() if all(TopicPartition(name, number) in able for number in range(count))}

    async def run(self, topics: Mapping[str, int]) -> None:
        """Fail these back, and compare. NotConvergedError, MirrorError."""
        self._before = {partition: log for partition, (_, log) in logs_of_leaders(self._source).items()}
        with TemporaryDirectory() as directory:
            striking = self._source.start(self._strike(), "strikes")
            operating = self._source.start(self._operate(topics, Path(directory)), "operator")
            writing = self._source.start(self._promoter.write(self._partitions(topics)), "writer")
            late = self._source.start(self._write_late(self._partitions(topics)), "late")
            self._begin()
            await wait_for(self._source, [operating], LIMIT_S)
            await self._source.sleep(log_uniform(self._random, *STRUCK_S))
            self._heal()
            await wait_for(self._source, [striking, writing, late], LIMIT_S)
            halts = await self._drained(topics)
            for host in self._hosts:
                host.may_start = lambda _host: False
                host.end()
            await self._check(topics, halts, Path(directory))

    # What happens

    def _begin(self) -> None:
        for keeper in self._keepers:
            keeper.is_over = False
        for host in self._hosts:
            host.start()

    def _heal(self) -> None:
        self._is_over = True
        for keeper in self._keepers:
            keeper.heal()

    async def _strike(self) -> None:
        random = self._random
        while not self._is_over:
            await self._source.sleep(random.expovariate(1 / STRIKE_S))
            keeper, host = random.choice(self._keepers), random.choice(self._hosts)
            seconds, kind, silently = log_uniform(random, *PAUSE_S), random.randrange(4), random.random() < 0.3
            down_s = log_uniform(random, *DOWN_S)
            if self._is_over:
                return
            if kind == 0 and keeper.host.process is not None:
                keeper.host.pause(seconds)
            elif kind == 1 and keeper.host.process is not None:
                keeper.down_s = down_s
                keeper.host.kill()
            elif kind == 2:
                host.pause(seconds)
            else:
                host.down_s = down_s
                host.end(silently=silently)

    async def _operate(self, topics: Mapping[str, int], directory: Path) -> None:
        """Repeat the command until all partitions follow."""
        target, source = Brokers(self._context), Brokers(self._target.client("operator"))
        keep = RecordKeeper(target, directory).keep if self._keeps else None
        while True:
            try:
                failing_back = FailBack(target, source, lambda names: [name for name in names if name in topics])
                partitions = await failing_back.partitions()
                outcomes = await failing_back.compare(partitions)
                if all(each.state is State.READY for each in outcomes):
                    discards = any(each.lost for each in outcomes) or self._random.random() < 0.5
                    outcomes = await failing_back.follow(partitions, keep if discards else None, discards=discards)
            except (PeerError, WorldError):
                await target.back_off()
                continue
            self._shown |= {each.partition: (each.offset, each.end) for each in outcomes if each.offset >= 0 and each.lost}
            if all(each.state is State.FOLLOWS for each in outcomes):
                break
            await pause(self._context)
        target.close()
        source.close()

    async def _write_late(self, partitions: Sequence[TopicPartition]) -> None:
        """What clients do that do not know yet that the other cluster was promoted."""
        random = self._context.random
        producer = SimulatedProducer(self._source.client("late"), delivery_timeout_s=DELIVERY_S)
        for number in range(random.choice((0, 5, 100))):
            partition, value = random.choice(partitions), LATE + b"%d" % number
            message = Message(value, b"%d" % random.randrange(KEYS))
            with suppress(SendError):
                delivered = await producer.send_and_wait(partition.topic, message, partition=partition.partition)
                assert delivered.offset is not None, "it was acknowledged"
                self._late.setdefault(partition, {})[delivered.offset] = value
            await self._source.sleep(random.expovariate(1 / LATE_S))
        await producer.close()

    async def _drained(self, topics: Mapping[str, int]) -> Mapping[TopicPartition, Halt]:
        """What stands still in the end. A process that has looked at the topics before they followed waits for its next look."""
        until = self._source.schedule.now + LOOKED_S
        while (halts := await drained(self._target, self._hosts, lambda: self._ends(topics))) and self._source.schedule.now < until:
            await self._source.sleep(1.0)
        return halts

    async def _ends(self, topics: Mapping[str, int]) -> Ends:
        admin, ends = SimulatedAdmin(self._target.client("surveyor")), {}
        for partition in self._partitions(topics):
            end = await admin.offset(partition, LATEST, committed=False)
            ends[partition] = (await admin.brokers.topic(partition.topic)).topic_id, end
        admin.close()
        return ends

    # The verdict

    async def _check(self, topics: Mapping[str, int], halts: Mapping[TopicPartition, Halt], directory: Path) -> None:
        promoted, former = logs_of_leaders(self._target), logs_of_leaders(self._source)
        for partition in self._partitions(topics):
            if partition in halts:
                raise MirrorError(f"{partition}: after the fail-back it is halted: {halts[partition].value}")
            state, log, before = former[partition][0].state, promoted[partition][1], self._before[partition]
            assert state is not None, "it has a leader"
            if not state.is_mirror:
                raise MirrorError(f"{partition}: it follows, and is no mirror's")
            if end_of(former[partition][1]) != end_of(log):
                raise MirrorError(f"{partition}: it ends at {end_of(former[partition][1])}, the log that it follows at {end_of(log)}")
            self._judge.check_written(partition, self._judge.cuts[partition], log)
            if partition.topic == NEWEST:  # each replica removes records at its own time
                there, here = [await read_all(cluster.client("judge"), partition, 0) for cluster in (self._target, self._source)]
                check_newest(partition, there, here, end_of(log))
            else:
                self._check_lost(partition, before, log, directory / str(partition))
                check_batches(partition, log, former[partition][1], end_of(log))
                self.batches += len(log)

    def _check_lost(self, partition: TopicPartition, before: Log, log: Log, directory: Path) -> None:
        """What the source had and the target has not is in files, or was shown."""
        parted = next((offset for offset in sorted(before) if offset not in log or log[offset][1] != before[offset][1]), end_of(before))
        late = self._late.get(partition, {})
        end = max([end_of(before), *(offset + 1 for offset in late)])
        shown = self._shown.get(partition)
        if shown is not None and not (shown[0] == parted and shown[1] >= end):
            raise MirrorError(f"{partition}: shown as lost was {shown}, and lost are offsets {parted} to {end}")
        if not self._keeps:
            return
        kept = log_of(path.read_bytes() for path in sorted(directory.glob("*.log")))
        lost = sorted(offset for offset in before if offset >= parted)
        if any(offset not in kept or kept[offset][1] != before[offset][1] for offset in lost):
            raise MirrorError(f"{partition}: kept are the batches at offsets {sorted(kept)}, never mirrored were {lost}")
        foreign = {
            record.offset: record.value
            for offset, (_, data) in kept.items()
            if offset not in lost
            for record in iterate(memoryview(data), max_decompressed_bytes=1 << 20)
        }
        for offset, value in late.items():
            if foreign.pop(offset, None) != value:
                raise MirrorError(f"{partition}: {value!r} was acknowledged at {offset}, and was not kept")
        if any(value is None or not bytes(value).startswith(LATE) for value in foreign.values()):
            raise MirrorError(f"{partition}: records are kept that were mirrored: {foreign}")

    @staticmethod
    def _partitions(topics: Mapping[str, int]) -> list[TopicPartition]:
        return [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
