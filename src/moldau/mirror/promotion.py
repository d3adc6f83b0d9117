"""The promotion of a copy: partitions of the target take nothing more from the mirror, and clients write to them.

    wait until nothing moves ─> read the cut at the leader ─> AlterMirror ─> every leader is in its new term

**Planned.** The producers of the source were stopped. The copy is waited for until it has all that the source has, topics that it has not
made yet included, and every transaction has ended. After the promotion the ends of the source are read again, so that a producer that was
forgotten is noticed.

**Failover.** The target has what the mirror brought. A mirror that still runs stores what it had in its buffers, so it is waited, not for
long, until the logs stand still; the source is not needed.

The cut is the last stable offset: before it every transaction has ended, and all in-sync replicas have all of it. Where one of these has
its marker after the cut, the leader cuts before it too, and the outcome has that offset. What the log has from there on is dropped, the
records of other producers between included; the mirror's process may bring more until the controller has altered the partition, and that is
dropped too. All of it was acknowledged by the source alone, which has it still: `fail_back` lists it there.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from moldau.mirror import altering, catalog, target_topics
from moldau.mirror.altering import Alteration
from moldau.mirror.inventory import MIRROR_SOURCE
from moldau.mirror.log_ends import LogEnd, epoch_end, high_watermark, look
from moldau.model.errors import WorldError
from moldau.model.identity import LogCut, TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

ROUND_S = 0.5
"""Between two looks at all partitions."""
SETTLE_S = 10.0
"""A failover waits so long at most for logs to stand still."""
SOURCE_S = 10.0
"""A source that does not answer for so long is lost."""


Choose = Callable[[Iterable[str]], Sequence[str]]
"""Those of a cluster's topics that are meant."""


class SourceAwayError(WorldError):
    """A planned promotion needs the source."""


class State(Enum):
    """What became of a partition."""

    READY = "ready"
    """It would be promoted."""
    WAITS = "not ready"
    PROMOTED = "promoted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One partition of the copy."""

    partition: TopicPartition
    state: State
    epoch: int = -1
    """Last one of the source."""
    offset: int = -1
    """The records before it are the source's; clients write from here on."""
    end: int = -1
    """Of the log before the cut: from `offset` up to here it is dropped."""
    left_behind: int = 0
    """Offsets that the source has after `offset`; 0 if it was not asked."""
    reason: str = ""

    @property
    def dropped(self) -> int:
        """How many offsets the cut drops."""
        return self.end - self.offset


class Promotion:
    """See the module. `source` is None for a failover."""

    def __init__(self, target: "Brokers", source: "Brokers | None", choose: Choose) -> None:
        self._target = target
        self._source = source
        self._choose = choose

    async def partitions(self) -> list[TopicPartition]:
        """The partitions that are a mirror's still, and those of the source that it has not made in the target yet.

        SourceAwayError; PeerError, WorldError of a cluster, PeerError of `choose`.
        """
        here: dict[str, int] = {}
        if self._source is not None:
            await self._reach(self._source)
            here = {name: seen.partitions for name, seen in (await catalog.look(self._source)).topics.items()}
        there = await self._counts()
        names = self._choose(here.keys() | there.keys())
        known = [name for name in names if name in there]
        configs, failed = await altering.each_of(known, lambda name: target_topics.configs_of(self._target, name, frozenset()))
        copies = [name for name in names if name not in there or name in failed or configs[name].get(MIRROR_SOURCE)]
        partitions = [TopicPartition(name, number) for name in copies for number in range(max(here.get(name, 0), there.get(name, 0)))]
        existing = [each for each in partitions if each.partition < there.get(each.topic, 0)]
        found, _ = await altering.each_of(existing, lambda each: altering.is_mirrors(self._target, each))
        return [each for each in partitions if found.get(each, True)]

    async def prepare(self, partitions: Sequence[TopicPartition], limit_s: float) -> list[Outcome]:
        """Wait until all are ready, or for so long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        before: list[Outcome] = []
        while True:
            outcomes = await self._look(partitions)
            is_still = self._source is not None or outcomes == before
            if loop.time() >= deadline or (is_still and all(each.state is State.READY for each in outcomes)):
                return outcomes
            before = outcomes
            await asyncio.sleep(ROUND_S)

    async def promote(self, ready: Sequence[Outcome]) -> list[Outcome]:
        """Promote each at its cut. PeerError, WorldError if the controller cannot be asked; then it may have carried it out."""
        outcomes = {each.partition: each for each in ready}
        cuts = {partition: Alteration(is_mirror=False, cut=LogCut(max(each.epoch, 0), each.offset)) for partition, each in outcomes.items()}
        failures = await altering.alter(self._target, cuts)

        async def leads(partition: TopicPartition) -> bool:
            return not await altering.is_mirrors(self._target, partition)

        altered = [each for each in outcomes if each not in failures]
        failures |= await altering.confirm(altered, leads, "promoted, but its leader does not take records from clients yet")
        led = [each for each in altered if each not in failures]
        confirmed, failed = await altering.each_of(led, lambda each: self._confirm(outcomes[each]))
        failures |= failed
        return [
            confirmed[partition] if partition in confirmed else replace(each, state=State.FAILED, reason=failures[partition])
            for partition, each in outcomes.items()
        ]

    # Inside

    @staticmethod
    async def _reach(source: "Brokers") -> None:
        try:
            await source.insist(lambda: source.ask(ApiKey.METADATA, MetadataRequest(topics=[])), SOURCE_S)
        except WorldError as error:
            raise SourceAwayError(f"the source does not answer: {error}", retriable=True) from error

    async def _look(self, partitions: Sequence[TopicPartition]) -> list[Outcome]:
        there = await self._counts()
        found, failed = await altering.each_of([each for each in partitions if each.partition < there.get(each.topic, 0)], self._outcome)
        missing = [each for each in partitions if each not in found and each not in failed]
        found |= {each: Outcome(each, State.WAITS, reason="not in the target yet") for each in missing}
        return [found[each] if each in found else Outcome(each, State.FAILED, reason=failed[each]) for each in partitions]

    async def _counts(self) -> dict[str, int]:
        """How many partitions each topic of the target has."""
        return {name: seen.partitions for name, seen in (await catalog.look(self._target)).topics.items()}

    async def _outcome(self, partition: TopicPartition) -> Outcome:
        end = await look(self._target, partition)
        reason = await self._reason(partition, end)
        state = State.WAITS if reason and self._source is not None else State.READY
        return Outcome(partition, state, end.epoch, end.last_stable_offset, end.end_offset, reason=reason)

    async def _reason(self, partition: TopicPartition, end: LogEnd) -> str:
        """What a planned promotion waits for, and a failover drops."""
        if self._source is not None:
            behind = await high_watermark(self._source, partition) - end.end_offset
            if behind:
                return f"{behind} offsets behind the source" if behind > 0 else f"{-behind} offsets ahead of the source, which lost them"
        if end.high_watermark < end.end_offset:
            return f"offsets from {end.high_watermark} on are not in all in-sync replicas"
        if not end.is_settled:
            return f"a transaction is open from offset {end.last_stable_offset} on"
        return ""

    async def _confirm(self, ready: Outcome) -> Outcome:
        partition = ready.partition
        offset = await epoch_end(self._target, partition, ready.epoch) if ready.epoch >= 0 else ready.offset
        if ready.dropped and offset < ready.offset:
            reason = f"a transaction is open from offset {ready.offset} on, and another one began at offset {offset} and ended after that"
            ready = replace(ready, offset=offset, reason=reason)
        if offset != ready.offset:
            reason = f"the source's records end at offset {offset}, not at the cut: its leader did not have all that was committed"
            return replace(ready, state=State.FAILED, reason=reason)
        left_behind = 0
        if self._source is not None:
            left_behind = max(await high_watermark(self._source, partition) - ready.offset, 0)
        return replace(ready, state=State.PROMOTED, left_behind=left_behind)
