"""Elections by suspicion: a broker is registered but does not answer. What it leads others lead meanwhile, if they can.

A suspicion may be wrong, and need not be right: the new epoch and the conditional state fence the suspected leader whether it lives or not.
It commits nothing without followers of its epoch, and cannot write another in-sync set. The suspected broker leaves the in-sync set in the
same write where others stay, or records with acks all would wait for it until its session ends. That is as safe as a leader's removing a
follower: all who stay have every committed record. Where too few stay it becomes eligible, as at any election. If it lives it truncates by
epochs, fetches, and joins again by the leader's rules.

A leader that answers the controller is suspected for a partition where most of the other brokers in sync, and at least two, report that
they get nothing from it: they would leave its in-sync set, or it commits nothing. One alone may itself be cut off, and would be the only
one in sync. Reports are repeated while they hold, and expire.

It must not flap where some connections work and others do not: for each partition at most one such election in a back-off, which is a
second, doubled by each election up to a minute, and halved for each back-off of quiet.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from moldau.cluster.controller.back_offs import BackOffs
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.image import ClusterImage
from moldau.cluster.controller.requests import ReportLeader
from moldau.cluster.snapshot import PartitionInfo
from moldau.model.config import BrokerConfig
from moldau.model.identity import TopicPartition

_LOG = logging.getLogger(__name__)

REPORT_TIMES = 4
"""A report holds for so many times `suspicion.timeout.ms`."""


class _Report(NamedTuple):
    """That one broker gets nothing from another: their incarnations, and until when it holds."""

    leader_epoch: int
    reporter_epoch: int
    until_ms: int


class SuspicionElections:
    """See the module."""

    def __init__(self, image: ClusterImage, elections: Elections, look_again: Callable[[], object], config: BrokerConfig) -> None:
        """`look_again` has `look` called after a while."""
        self._image = image
        self._elections = elections
        self._look_again = look_again
        self._back_offs = BackOffs()
        self._config = config
        self._reports: dict[int, dict[int, _Report]] = {}
        """By leader and reporter."""

    def report(self, request: ReportLeader, now_ms: int) -> None:
        """A broker gets nothing from another one."""
        leader_epoch = self._image.live.get(request.leader_id)
        if leader_epoch is None or self._image.live.get(request.reporter_id) != request.reporter_epoch:
            return
        until_ms = now_ms + REPORT_TIMES * self._config.int("suspicion.timeout.ms")
        self._reports.setdefault(request.leader_id, {})[request.reporter_id] = _Report(leader_epoch, request.reporter_epoch, until_ms)
        self.look(now_ms)

    def look(self, now_ms: int) -> None:
        """Elect for partitions that suspected brokers lead or are in sync in, as far as back-offs allow; the others later."""
        suspected = self._image.suspected
        self._forget_reports(now_ms)
        if not suspected and not self._reports:
            return
        self._back_offs.forget_old(now_ms)
        if suspected:
            self._elect_without(suspected, now_ms)
        for leader_id, reporters in self._reports.items():
            if leader_id not in suspected:
                self._elect_without_reported(leader_id, reporters, now_ms)
        self._look_again()

    def _elect_without(self, suspected: Collection[int], now_ms: int) -> None:
        wanted = [
            partition
            for partition, info in self._partitions()
            if any(each in suspected for each in info.isr)
            and not all(each in suspected for each in info.isr)
            and self._back_offs.may(partition, now_ms)
        ]
        if wanted:
            _LOG.warning("leaders elected by suspicion: suspected=%s partitions=%d", ",".join(map(str, suspected)), len(wanted))
            self._elections.elect(wanted, preferred=False, unclean=False, without_suspected=True)

    def _elect_without_reported(self, leader_id: int, reporters: Collection[int], now_ms: int) -> None:
        wanted = [
            partition
            for partition, info in self._partitions()
            if info.leader == leader_id and self._is_reported(info, reporters) and self._back_offs.may(partition, now_ms)
        ]
        if wanted:
            text = "leaders elected, followers get nothing from the one before: leader=%d followers=%s partitions=%d"
            _LOG.warning(text, leader_id, ",".join(map(str, reporters)), len(wanted))
            self._elections.elect(wanted, preferred=False, unclean=False, without=(leader_id,))

    def _is_reported(self, info: PartitionInfo, reporters: Collection[int]) -> bool:
        """Whether most of the live followers in sync report the leader: two at least, for of two brokers nothing says which is cut off."""
        live, suspected = self._image.live, self._image.suspected
        others = [each for each in info.isr if each != info.leader and each in live and each not in suspected]
        reported = sum(each in reporters for each in others)
        return reported > 1 and 2 * reported > len(others)

    def _partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        """Those with others in sync than the leader."""
        for name, topic in self._image.topics.items():
            for info in topic.partitions:
                if info is not None and len(info.isr) > 1:
                    yield TopicPartition(name, info.partition), info

    def _forget_reports(self, now_ms: int) -> None:
        """Forget those that have expired, and those of or by incarnations that have ended."""
        live, reports = self._image.live, self._reports
        self._reports = {}
        for leader_id, reporters in reports.items():
            kept = {
                reporter_id: each
                for reporter_id, each in reporters.items()
                if each.until_ms > now_ms and (live.get(leader_id), live.get(reporter_id)) == (each.leader_epoch, each.reporter_epoch)
            }
            if kept:
                self._reports[leader_id] = kept
