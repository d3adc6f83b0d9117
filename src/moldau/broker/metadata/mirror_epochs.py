"""Keeps the leader epoch of a mirror's partition above the epochs of the source in its log.

A consumer of Java takes the epoch of a batch for one of its partition's leadership: once it has fetched the offset that it had committed
after a batch of epoch 57, it takes no metadata with an earlier epoch, and reads no more. So a leader whose log has a later epoch than its
own has the controller raise its own. The batches do not wait for that: until then such a consumer waits.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.cluster.controller.requests import AlteredMirror, AlterMirrors
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.metadata.membership import ClusterMembership
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

AGAIN_S = 1.0
"""After a request that has failed the next one waits for so long."""


class MirrorEpochs:
    """One request at a time, for all partitions that need it by then."""

    def __init__(self, membership: "ClusterMembership", clock: "Clock", led: "Callable[[TopicPartition], HostedPartition | None]") -> None:
        """`led` gives a partition that this broker leads."""
        self._membership = membership
        self._clock = clock
        self._led = led
        self._wanted: dict[TopicPartition, None] = {}
        self._is_asking = False

    def look(self, partition: "HostedPartition") -> None:
        """Batches were appended to a mirror's partition."""
        if partition.log.latest_epoch > partition.machine.leader_epoch:
            self._wanted[partition.topic_partition] = None
            if not self._is_asking:
                self._ask_later(0.0)

    def _ask_later(self, delay_s: float) -> None:
        self._is_asking = True
        self._clock.call_later(delay_s, self._ask)

    def _ask(self) -> None:
        wanted, self._wanted = self._wanted, {}
        altered = {}
        for where in wanted:
            partition = self._led(where)
            if partition is None or not (partition.is_led and partition.machine.is_mirror):
                continue
            if partition.log.latest_epoch > partition.machine.leader_epoch:
                altered[where] = AlteredMirror(True, partition.log.latest_epoch)
        if not altered:
            self._is_asking = False
            return

        def done(outcome: Any) -> None:
            errors = [outcome] if isinstance(outcome, PeerError) else [each for each in outcome.values() if each is not None]
            if errors:
                _LOG.warning(
                    "leader epochs of mirrors not raised, Java consumers may wait; trying again: partitions=%d reason=%s",
                    len(altered),
                    errors[0],
                )
                self._wanted.update(dict.fromkeys(altered))
            if errors or self._wanted:
                self._ask_later(AGAIN_S)
            else:
                self._is_asking = False

        self._membership.ask(AlterMirrors(altered, {}), done, forwards=True)
