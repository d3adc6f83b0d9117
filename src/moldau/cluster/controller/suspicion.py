"""Elections by suspicion: a broker is registered but does not answer. What it leads others lead meanwhile, if they can.

A suspicion may be wrong, and need not be right: the new epoch and the conditional state fence the suspected leader whether it lives or not.
It commits nothing without followers of its epoch, and cannot write another in-sync set. The suspected broker leaves the in-sync set in the
same write where others stay, or records with acks all would wait for it until its session ends. That is as safe as a leader's removing a
follower: all who stay have every committed record. Where too few stay it becomes eligible, as at any election. If it lives it truncates by
epochs, fetches, and joins again by the leader's rules.

It must not flap where some connections work and others do not: for each partition at most one such election in a back-off, which is a
second, doubled by each election up to a minute, and halved for each back-off of quiet.
"""

import logging
from collections.abc import Callable

from moldau.cluster.controller.back_offs import BackOffs
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.image import ClusterImage
from moldau.model.identity import TopicPartition

_LOG = logging.getLogger(__name__)


class SuspicionElections:
    """See the module."""

    def __init__(self, image: ClusterImage, elections: Elections, look_again: Callable[[], object]) -> None:
        """`look_again` has `look` called after a while."""
        self._image = image
        self._elections = elections
        self._look_again = look_again
        self._back_offs = BackOffs()

    def look(self, now_ms: int) -> None:
        """Elect for partitions that suspected brokers lead or are in sync in, as far as back-offs allow; the others later."""
        suspected = self._image.suspected
        if not suspected:
            return
        self._back_offs.forget_old(now_ms)
        wanted = [
            partition
            for name, topic in self._image.topics.items()
            for info in topic.partitions
            if info is not None
            and len(info.isr) > 1
            and any(each in suspected for each in info.isr)
            and not all(each in suspected for each in info.isr)
            and self._back_offs.may(partition := TopicPartition(name, info.partition), now_ms)
        ]
        if wanted:
            _LOG.warning("leaders elected by suspicion: suspected=%s partitions=%d", ",".join(map(str, suspected)), len(wanted))
            self._elections.elect(wanted, preferred=False, unclean=False, without_suspected=True)
        self._look_again()
