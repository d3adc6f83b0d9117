"""Fail-back: partitions of a former source become a mirror's, and follow the copy that was promoted. Both logs keep their offsets.

    read both logs' epochs ─> no writes any more ─> read them again, keep what is lost ─> move groups back ─> cut ─> both logs agree

What the former source has after the point where the logs part was acknowledged to producers and never mirrored. It is named, and cut
only if that is asked for. The partitions refuse writes before it is read for the last time: AlterMirror makes them a mirror's without a
cut, under a `mirror.source` that no mirror takes for its own. The second AlterMirror cuts and names the source, and mirrors begin.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from moldau.mirror import altering, catalog, target_topics
from moldau.mirror.altering import Alteration
from moldau.mirror.cut_groups import move_back
from moldau.mirror.divergence import Divergence, UnrelatedLogsError, divergence
from moldau.mirror.inventory import MIRROR_SOURCE, source_text
from moldau.mirror.log_ends import epoch_runs
from moldau.mirror.promotion import Choose
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

PENDING = "pending fail-back to "
"""Before the source in `mirror.source`, while a partition is not cut yet."""
Keep = Callable[[TopicPartition, int, int], Awaitable[str]]
"""Keeps the records of a partition from an offset up to another; where they are."""


class State(Enum):
    """What became of a partition."""

    READY = "ready"
    """It would follow."""
    FOLLOWS = "follows"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One partition of the former source."""

    partition: TopicPartition
    state: State
    offset: int = -1
    """The logs have the same records before it; the mirror copies from here on."""
    end: int = -1
    """Of the log before the cut: from `offset` up to here it was never mirrored."""
    kept_in: str = ""
    reason: str = ""

    @property
    def lost(self) -> int:
        """How many offsets were never mirrored."""
        return self.end - self.offset


class FailBack:
    """See the module. `source` is the cluster that was promoted, `target` the former source."""

    def __init__(self, target: "Brokers", source: "Brokers", choose: Choose) -> None:
        self._target = target
        self._source = source
        self._choose = choose
        self._sources: dict[str, str] = {}
        """What `mirror.source` has to be, by topic."""

    async def partitions(self) -> list[TopicPartition]:
        """The partitions that both clusters have, and that do not follow yet. PeerError for a topic that cannot; WorldError."""
        ours, theirs = await catalog.look(self._target), await catalog.look(self._source)
        names = self._choose(theirs.topics.keys() & ours.topics.keys())
        for name in names:
            _check_counts(name, ours.topics[name].partitions, theirs.topics[name].partitions)
            promoted = await target_topics.configs_of(self._source, name, frozenset())
            if promoted.get(MIRROR_SOURCE):
                message = f"topic {name} of the source is a copy itself: promote it first, or is FILE the wrong way round?"
                raise PeerError(ErrorCode.INVALID_REQUEST, message)
        self._sources = {name: source_text(theirs.cluster_id, theirs.topics[name].topic_id) for name in names}
        return [TopicPartition(name, number) for name in names for number in range(ours.topics[name].partitions)]

    async def compare(self, partitions: Sequence[TopicPartition]) -> list[Outcome]:
        """Where each log parts from the source's; nothing is changed."""
        found, failed = await altering.each_of(partitions, self._divergence)
        return [self._outcome(each, found.get(each), failed.get(each, "")) for each in partitions]

    async def follow(self, partitions: Sequence[TopicPartition], keep: Keep | None, *, discards: bool) -> list[Outcome]:
        """Have partitions follow the source. Records that were never mirrored are kept first with `keep`; without it they are lost with
        `discards`, and without that their partitions only refuse writes. PeerError, WorldError: the controller cannot be asked.
        """
        todo, following = await self._left(partitions)
        fence = {each: Alteration(is_mirror=True, cut=None, source=PENDING + self._sources[each.topic]) for each in todo}
        failures = await altering.alter(self._target, fence)

        async def refuses_clients(partition: TopicPartition) -> bool:
            return await altering.is_mirrors(self._target, partition)

        failures |= await altering.confirm(
            [each for each in todo if each not in failures], refuses_clients, "its leader still takes writes"
        )
        outcomes = {each.partition: each for each in await self.compare([each for each in todo if each not in failures])}
        if keep is not None:
            lost = [each for each in outcomes.values() if each.state is State.READY and each.lost]
            kept, unkept = await altering.each_of(lost, lambda each: keep(each.partition, each.offset, each.end))
            outcomes |= {each.partition: replace(each, kept_in=place) for each, place in kept.items()}
            failures |= {each.partition: f"its records were not kept: {why}" for each, why in unkept.items()}
        elif not discards:
            failures |= {
                each.partition: "refuses writes; records were written since they were listed" for each in outcomes.values() if each.lost
            }
        outcomes |= {each: Outcome(each, State.FAILED) for each in todo if each not in outcomes}
        outcomes |= {each: replace(outcomes[each], state=State.FAILED, reason=why) for each, why in failures.items()}
        outcomes |= {each.partition: each for each in await self._moved_groups(outcomes)}
        outcomes |= {each.partition: each for each in await self._cut([each for each in outcomes.values() if each.state is State.READY])}
        return [following.get(each) or outcomes[each] for each in partitions]

    # Inside

    async def _left(self, partitions: Sequence[TopicPartition]) -> tuple[list[TopicPartition], dict[TopicPartition, Outcome]]:
        """The partitions of topics of which not all follow; and the others."""
        topics = altering.of_topics(partitions)
        configs, _ = await altering.each_of(list(topics), lambda name: target_topics.configs_of(self._target, name, frozenset()))
        named = [each for each in partitions if configs.get(each.topic, {}).get(MIRROR_SOURCE) == self._sources[each.topic]]
        compared = {each.partition: each for each in await self.compare(named) if each.state is State.READY and not each.lost}
        mirrored, _ = await altering.each_of(list(compared), lambda each: altering.is_mirrors(self._target, each))
        following = {each: replace(compared[each], state=State.FOLLOWS) for each, is_mirrors in mirrored.items() if is_mirrors}
        whole = {name for name, each in topics.items() if all(partition in following for partition in each)}
        todo = [each for each in partitions if each.topic not in whole]
        return todo, {each: outcome for each, outcome in following.items() if each.topic in whole}

    async def _moved_groups(self, outcomes: Mapping[TopicPartition, Outcome]) -> list[Outcome]:
        """Before the cut: a command that is repeated after it finds nothing that is lost."""
        lost = {each.partition: each for each in outcomes.values() if each.state is State.READY and each.lost}
        notes, failures = await move_back(self._target, {partition: each.offset for partition, each in lost.items()})
        return [
            replace(each, state=State.FAILED, reason=failures[partition])
            if partition in failures
            else replace(each, reason="; ".join(notes.get(partition, ())))
            for partition, each in lost.items()
        ]

    async def _divergence(self, partition: TopicPartition) -> Divergence:
        try:
            return divergence(await epoch_runs(self._target, partition), await epoch_runs(self._source, partition))
        except UnrelatedLogsError as error:
            raise PeerError(ErrorCode.INVALID_REQUEST, str(error)) from error

    @staticmethod
    def _outcome(partition: TopicPartition, found: Divergence | None, reason: str) -> Outcome:
        if found is None:
            return Outcome(partition, State.FAILED, reason=reason)
        return Outcome(partition, State.READY, found.offset, found.end)

    async def _cut(self, ready: Sequence[Outcome]) -> list[Outcome]:
        found, failures = await altering.each_of([each.partition for each in ready], self._divergence)
        wanted = {each: Alteration(is_mirror=True, cut=parted.cut, source=self._sources[each.topic]) for each, parted in found.items()}
        failures |= await altering.alter(self._target, wanted)

        async def agrees(partition: TopicPartition) -> bool:
            parted = await self._divergence(partition)
            return parted.end == parted.offset

        failures |= await altering.confirm([each for each in wanted if each not in failures], agrees, "its leader has not cut its log yet")
        return [
            replace(each, state=State.FAILED, reason=failures[each.partition])
            if each.partition in failures
            else replace(each, state=State.FOLLOWS)
            for each in ready
        ]


def _check_counts(topic: str, ours: int, theirs: int) -> None:
    if ours > theirs:
        message = f"topic {topic} has {ours} partitions in the target and {theirs} in the source: those beyond cannot follow"
        raise PeerError(ErrorCode.INVALID_PARTITIONS, message)
