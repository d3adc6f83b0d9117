"""A process of a merge with a simple way of sharing: it joins the group of the mirror, and merges what it is assigned.

All partitions go to one member, and they are given away before each join: who joins later begins where the target says. So each change of
members is a hand-over of everything, more often than `mirror.sharing` has one.
"""

import asyncio
from collections.abc import Mapping

from moldau.mirror.merge.merge import Merge
from moldau.mirror.merge.part import Given
from moldau.mirror.merge.positions import Key
from moldau.mirror.merge.route import Route
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.plan.values import Partitioning
from moldau.mirror.source import SourceReader
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.ports.clock import Clock
from moldau.testing.simulation.mirrors.work import MIRROR, SOURCE, Progress, WorkPlan
from moldau.wire.brokers import Brokers
from moldau.wire.group import GroupMetadata, Membership

CLUSTER, TARGET = "source", "target"
ALL, NOTHING = b"all", b""
LOOK_S = 0.1
TOPICS_S = 1.0
"""Between two looks for topics that do not exist yet."""


class AllToOne:
    """A :class:`moldau.wire.group.Sharing`: one member has all, the same one as long as it is a member."""

    protocol_type = "mirror"
    name = "all"

    async def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Assignments by member id."""
        chosen = next((member for member, had in members.items() if had == ALL), next(iter(members)))
        return {member: ALL if member == chosen else NOTHING for member in members}


class _Member:
    """A :class:`moldau.mirror.merge.merge.Member`."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def metadata(self) -> GroupMetadata:
        """Who it is."""
        return self._membership.metadata

    def doubted(self) -> None:
        """Join again."""
        self._membership.needs_rejoin = True


class MirrorMember:
    """See the module. Made on the loop of its process. A :class:`moldau.testing.simulation.mirrors.work.Work`."""

    def __init__(self, plan: WorkPlan, source: Brokers, target: Brokers, clock: Clock) -> None:
        self.has_all = False
        """Whether all partitions are this member's."""
        self.given: dict[SourcePartition, Given] = {}
        """Those that exist."""
        self._halts: dict[SourcePartition, Halt] = {}
        self._plan = plan
        self._source = source
        self._target = target
        group = f"mirror.{MIRROR}"
        self.membership = Membership(
            target, group, AllToOne(), instance_id=plan.instance, session_timeout_s=plan.session_timeout_s, rebalance_timeout_s=10.0
        )
        transactional_id = f"{group}.{plan.instance}"
        route = Route(Partitioning.SAME, lambda partition: partition.topic, plan.topics.__getitem__)
        readers: dict[str, SourceReader] = {}
        self.merge = Merge(MIRROR, plan.instance, target, transactional_id, clock, _Member(self.membership), route, readers, self._halted)
        self._reader = SourceReader(
            SOURCE, source, clock, self.merge, self.merge.may_fetch, committed=True, verifies=True, limits=plan.limits
        )
        readers[SOURCE] = self._reader
        self._missing = dict(plan.topics)

    async def run(self) -> None:
        """Mirror, until another process has the name of this instance."""
        merging = asyncio.ensure_future(self.merge.run())
        looked_at = asyncio.get_running_loop().time()
        while not self.membership.is_fenced and not merging.done():
            if self.membership.needs_rejoin:
                await self._join()
            elif self.has_all and self._missing and asyncio.get_running_loop().time() >= looked_at:
                await self._look_for_topics()
                looked_at = asyncio.get_running_loop().time() + TOPICS_S
            await asyncio.sleep(LOOK_S)
        self.membership.stop()
        merging.cancel()
        await asyncio.gather(merging, return_exceptions=True)
        await self._reader.close()

    def progress(self) -> dict[SourcePartition, Progress]:
        """See `Work`."""
        if not self.has_all:
            return {}
        written = self.merge.written()
        return {
            each: Progress(written[each].offset if each in written else None, self._halts.get(each)) for each in (*self.given, *self._halts)
        }

    def _halted(self, partition: SourcePartition, why: Halt, _reason: str) -> None:
        self._halts[partition] = why

    async def _join(self) -> None:
        had = ALL if self.has_all else NOTHING
        self.has_all = False
        await self.merge.take_away(list(self.given))
        self.given.clear()
        self._missing = dict(self._plan.topics)
        try:
            assigned = await self.membership.rejoin(had)
        except (PeerError, WorldError):
            await self._target.back_off()
            return
        self.has_all = assigned == ALL

    async def _look_for_topics(self) -> None:
        """Begin with those that exist now."""
        for topic, partitions in list(self._missing.items()):
            try:
                found = await self._source.topic(topic)
            except PeerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    await self._source.back_off()
                continue
            except WorldError:
                await self._source.back_off()
                continue
            del self._missing[topic]
            given = {
                SourcePartition(SOURCE, found.topic_id, topic, number): Given(
                    Key(MIRROR, CLUSTER, found.topic_id, number), TARGET, _beginning
                )
                for number in range(partitions)
            }
            self.given |= given
            await self.merge.give(given)


async def _beginning() -> Position:
    return Position(0)
