"""Offsets of consumer groups, mirrored: what the selected groups have committed in the sources is translated and committed in the target.

* A group with members in the target is left alone, as with MirrorMaker 2 (KIP-545), and none is moved back there: it may have worked there.
* Nothing is committed beyond what is mirrored. Partitions that have halted, or are paused, are left out.
* Each group fails alone: what is wrong with it is in the status, and the next round tries it again.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from moldau.mirror.following.answers import Answers, CopyAnswers, MergeAnswers
from moldau.mirror.following.checkpoints import NO_OFFSET, Checkpoint, CheckpointKey, CheckpointWriter
from moldau.mirror.following.decision import offsets_to_commit
from moldau.mirror.following.groups import Committed, GroupOffsets, Listing, committed_offsets, list_groups
from moldau.mirror.partitions import SourcePartition
from moldau.mirror.plan.values import Mode
from moldau.mirror.translation.translate import Answer, SourceOffset, Translated, assembled, by_target_topic
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.log_throttle import LogThrottle
from moldau.wire.group import GroupMetadata, commit_offsets

if TYPE_CHECKING:
    from moldau.mirror.inventory import Inventory
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

INSIST_S = 5.0
"""How long one commit is tried: the next round comes soon."""
_LOGGED_EACH_S = 600.0
_REASONS_LOGGED_MAX = 200


class GroupSync:
    """See the module. `round` does it once."""

    def __init__(
        self,
        plan: "MirrorPlan",
        target: "Brokers",
        sources: Mapping[str, "Brokers"],
        inventory: "Inventory",
        clock: "Clock",
        is_followed: Callable[[SourcePartition], bool],
    ) -> None:
        """`is_followed`: whether a partition of a source is neither halted nor paused, in any process."""
        self.failures: dict[str, str] = {}
        """Of the last round: why a group's offsets are not mirrored, or, without a name, those of several groups are not."""
        self.groups = 0
        self.busy = 0
        """Groups with members in the target."""
        self.commits = 0
        """Offsets committed so far."""
        self._plan = plan
        self._target = target
        self._sources = sources
        self._inventory = inventory
        self._clock = clock
        self._is_followed = is_followed
        self._answers: Answers = (
            CopyAnswers(target, inventory) if plan.mode is Mode.COPY else MergeAnswers(plan.name, target, inventory, clock)
        )
        self._partitions_seen: tuple[SourcePartition, ...] | None = None
        self._by_source: dict[str, dict[TopicPartition, SourcePartition]] = {}
        """The partitions that were seen last."""
        self._checkpoints = {name: CheckpointWriter(name, target, clock) for name in sources}
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    @property
    def checkpoints(self) -> int:
        """Checkpoints written so far."""
        return sum(each.count for each in self._checkpoints.values())

    async def round(self) -> None:
        """Mirror what there is now. PeerError, WorldError: the target does not answer."""
        failures = dict[str, str]()
        committed = {name: await self._committed(name, brokers, failures) for name, brokers in self._sources.items()}
        groups = sorted({group for mine in committed.values() for group in mine})
        there = await list_groups(self._target)
        for broker, reason in there.failures.items():
            _join(failures, "", f"target, broker {broker}: {reason}")
        offsets = {group: self._offsets(group, committed) for group in groups}
        await self._answers.learn({each for mine in offsets.values() for each in mine})
        idle = await self._offsets_there(groups, there, failures)
        translated = {group: self._translated(offsets[group], idle.get(group), failures, group) for group in groups}
        for group, mine in idle.items():
            if not mine.failure:
                await self._commit(group, offsets_to_commit(translated[group], mine.offsets), offsets[group], translated[group], failures)
        await self._write_checkpoints(translated, offsets, failures)
        self.groups, self.busy, self.failures = len(groups), sum(self._is_busy(group, there) for group in groups), failures
        for group, reason in failures.items():
            if self._throttle.due((group, reason), self._clock.monotonic()):
                _LOG.warning("offsets of a group not mirrored, trying again: mirror=%s group=%s reason=%s", self._plan.name, group, reason)

    async def _committed(self, source: str, brokers: "Brokers", failures: dict[str, str]) -> dict[str, GroupOffsets]:
        listing = await list_groups(brokers)
        for broker, reason in listing.failures.items():
            _join(failures, "", f"source {source}, broker {broker}: {reason}")
        selected = {name: each for name, each in listing.groups.items() if self._plan.groups.patterns.matches(name)}
        found = await committed_offsets(brokers, selected)
        for group, mine in found.items():
            if mine.failure:
                _join(failures, group, f"source {source}: {mine.failure}")
        return found

    def _offsets(self, group: str, committed: Mapping[str, Mapping[str, GroupOffsets]]) -> "dict[SourceOffset, Committed]":
        """Of partitions that are mirrored now."""
        found = dict[SourceOffset, Committed]()
        for source, groups in committed.items():
            mine = groups.get(group, GroupOffsets()).offsets
            if not mine:
                continue
            mirrored = self._partitions_of(source)
            for where, each in sorted(mine.items()):
                partition = mirrored.get(where)
                if partition is not None and self._is_followed(partition):
                    found[SourceOffset(partition, each.offset)] = each
        return found

    def _partitions_of(self, source: str) -> "dict[TopicPartition, SourcePartition]":
        known = self._inventory.partitions
        if self._partitions_seen is not known:
            self._partitions_seen = known
            self._by_source = {name: {} for name in self._sources}
            for each in known:
                self._by_source[each.source][each.topic_partition] = each
        return self._by_source[source]

    async def _offsets_there(self, groups: list[str], there: Listing, failures: dict[str, str]) -> dict[str, GroupOffsets]:
        """What groups without members have committed in the target."""
        known = {group: there.groups[group] for group in groups if group in there.groups and there.groups[group].is_idle}
        found = {group: GroupOffsets() for group in groups if group not in there.groups and not there.failures}
        found |= await committed_offsets(self._target, known)
        for group, mine in found.items():
            if mine.failure:
                _join(failures, group, f"target: {mine.failure}")
        return found

    def _translated(
        self, offsets: "Mapping[SourceOffset, Committed]", there: GroupOffsets | None, failures: dict[str, str], group: str
    ) -> list[Translated]:
        known = {} if there is None else there.offsets
        answers = dict[SourceOffset, Answer]()
        for each in offsets:
            place = self._inventory.target_topic(each.partition), each.partition.number
            answer = self._answers.answer(each, is_first=there is not None and place not in known)
            if answer is not None:
                answers[each] = answer
        by_topic = by_target_topic(self._plan, answers)
        found = assembled(self._plan, by_topic, {name: self._inventory.target_count(name) for name in by_topic}, answers)
        for lost in found:
            if lost.offset is None:
                _join(failures, group, lost.reason)
        return found

    async def _commit(
        self,
        group: str,
        wanted: "Mapping[TopicPartition, int]",
        offsets: "Mapping[SourceOffset, Committed]",
        translated: list[Translated],
        failures: dict[str, str],
    ) -> None:
        if not wanted:
            return
        texts = {each.target: offsets[each.sources[0]].metadata for each in translated if len(each.sources) == 1}
        try:
            await self._target.insist(lambda: commit_offsets(self._target, GroupMetadata(group), wanted, metadata=texts), INSIST_S)
            self.commits += len(wanted)
        except (PeerError, WorldError) as error:
            is_busy = isinstance(error, PeerError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID  # a member has come meanwhile
            if not is_busy:
                _join(failures, group, f"target: {error}")

    async def _write_checkpoints(
        self,
        translated: Mapping[str, list[Translated]],
        offsets: "Mapping[str, Mapping[SourceOffset, Committed]]",
        failures: dict[str, str],
    ) -> None:
        for source, writer in self._checkpoints.items():
            checkpoints = dict[CheckpointKey, Checkpoint]()
            for group, found in translated.items():
                for each in found:
                    mine = [place for place in each.sources if place.partition.source == source]
                    if each.offset is None or not mine:
                        continue
                    upstream, text = (mine[0].offset, offsets[group][mine[0]].metadata) if len(mine) == 1 else (NO_OFFSET, "")
                    checkpoints[CheckpointKey(group, each.target)] = Checkpoint(upstream, each.offset, text)
            try:
                await writer.write(checkpoints.items())
            except (PeerError, WorldError) as error:
                _join(failures, "", f"checkpoints of source {source}: {error}")

    def _is_busy(self, group: str, there: Listing) -> bool:
        return group in there.groups and not there.groups[group].is_idle


def _join(failures: dict[str, str], group: str, reason: str) -> None:
    failures[group] = f"{failures[group]}; {reason}" if group in failures else reason
