"""Where offsets of the sources are in the target now, for any number of groups at once."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.mirror.ends import ends_of
from moldau.mirror.following.merge_state import MergeState, Wanted
from moldau.mirror.inventory import mirror_sources, source_text
from moldau.mirror.merge.positions import Key
from moldau.mirror.merge.runs import OFFSETS
from moldau.mirror.translation.search import Place
from moldau.mirror.translation.translate import Answer, SourceOffset, of_partition
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.mirror.inventory import Inventory
    from moldau.mirror.partitions import SourcePartition
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

LOOK_UP_S = 60.0
"""At least so long is between two look-ups of offsets whose runs are not in memory."""


class Answers(Protocol):
    """What a mode of a mirror knows of offsets."""

    async def learn(self, offsets: Collection[SourceOffset]) -> None:
        """Find out about these. PeerError, WorldError."""

    def answer(self, wanted: SourceOffset, *, is_first: bool) -> Answer | None:
        """What was found out. None: nothing of the partition is mirrored yet, or it is no copy of it any more.

        `is_first`: the group has no offset there yet.
        """


class CopyAnswers:
    """A copy keeps offsets. None is beyond what can be read in the target: a failover would cut there, and other records would follow.

    A topic that was promoted, or made again, has other records at the same offsets, so that is asked in each round.
    """

    def __init__(self, target: "Brokers", inventory: "Inventory") -> None:
        self._target = target
        self._inventory = inventory
        self._ends: dict[TopicPartition, int] = {}
        self._copies: dict[str, str] = {}
        """`mirror.source` by topic."""

    async def learn(self, offsets: Collection[SourceOffset]) -> None:
        """As :class:`Answers`."""
        self._ends = await ends_of(self._target, {each.partition.topic_partition for each in offsets}, committed=True)
        topics = sorted({each.topic for each in self._ends})
        self._copies = await mirror_sources(self._target, topics)

    def answer(self, wanted: SourceOffset, *, is_first: bool) -> Answer | None:
        """As :class:`Answers`."""
        partition = wanted.partition
        end = self._ends.get(partition.topic_partition)
        source = source_text(self._inventory.cluster_id(partition.source), partition.topic_id)
        if end is None or self._copies.get(partition.topic) != source:
            return None
        return Answer({partition.topic_partition: Place(min(wanted.offset, end), is_record=wanted.offset < end)})


class MergeAnswers:
    """By the runs of the merge's transactions. An offset beyond the position means that the group has read all that is mirrored."""

    def __init__(self, mirror: str, target: "Brokers", inventory: "Inventory", clock: "Clock") -> None:
        self._mirror = mirror
        self._target = target
        self._inventory = inventory
        self._clock = clock
        self._state = MergeState(mirror, target)
        self._ends: dict[TopicPartition, int] = {}
        self._looked_up_s: float | None = None

    async def learn(self, offsets: Collection[SourceOffset]) -> None:
        """As :class:`Answers`."""
        places = {self._place(each.partition) for each in offsets}
        self._ends = await ends_of(self._target, places, committed=True)  # before the runs: it is not after what comes
        await self._state.read_on()
        wanted = set(self._wanted(offsets))
        self._state.forget_but(wanted)
        missing = {each for each in wanted if self._state.find(*each) is None}
        now_s = self._clock.monotonic()
        if missing and (self._looked_up_s is None or now_s - self._looked_up_s >= LOOK_UP_S):
            await self._state.look_up(missing)
            self._looked_up_s = self._clock.monotonic()

    def answer(self, wanted: SourceOffset, *, is_first: bool) -> Answer | None:
        """As :class:`Answers`."""
        key = self._key(wanted.partition)
        stored = self._state.positions.get(key)
        if stored is None:
            return None
        mirrored = wanted._replace(offset=min(wanted.offset, stored.position.offset))
        found = self._state.find(key, mirrored.offset)
        if found is None:
            return Answer({}, f"{mirrored} is looked up in {OFFSETS.topic}, which happens every {LOOK_UP_S:g} s")
        place = self._place(wanted.partition)
        at_end: Mapping[TopicPartition, Place] = {}
        if is_first and place in self._ends:
            at_end = {place: Place(self._ends[place], is_record=False)}
        return of_partition(mirrored, stored, found, at_end, is_whole=self._state.is_whole)

    def _wanted(self, offsets: Iterable[SourceOffset]) -> Iterable[Wanted]:
        for each in offsets:
            key = self._key(each.partition)
            stored = self._state.positions.get(key)
            if stored is not None:
                yield key, min(each.offset, stored.position.offset)

    def _key(self, partition: "SourcePartition") -> Key:
        return Key(self._mirror, self._inventory.cluster_id(partition.source), partition.topic_id, partition.number)

    def _place(self, partition: "SourcePartition") -> TopicPartition:
        """Of one that has read everything."""
        return TopicPartition(self._inventory.target_topic(partition), partition.number)
