"""What a broker has for partitions with other replicas; made with the first such partition."""

import logging
from typing import TYPE_CHECKING, Protocol

from moldau.broker.replicas.fetchers import ReplicaFetchers
from moldau.broker.replicas.isr_changes import IsrChanges
from moldau.broker.replicas.session_doubt import SessionDoubt
from moldau.broker.replicas.throttles import FollowerThrottle, LeaderThrottle
from moldau.cluster.changes import PutLogDirEvent
from moldau.fetching.fetcher import OUT_MAX
from moldau.model.errors import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.peers.connection import PeerConnection
    from moldau.broker.peers.connections import Connect
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.replicas.services import MetadataSource
    from moldau.cluster.store import MetadataStore
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

REQUESTS_OUT_MAX = OUT_MAX + 1
"""Of one fetcher: its Fetches, and the lookup of partitions whose offsets are out of range."""

if TYPE_CHECKING:

    class Incarnation(Protocol):
        """This broker's registration."""

        broker_epoch: int

    class Reporter(Protocol):
        """The way to the controller."""

        def report_leader(self, leader_id: int) -> None:
            """Have it know that this broker gets nothing from a leader that it follows."""

    class Services(Protocol):
        """What replication uses of the broker."""

        @property
        def applier(self) -> Incarnation:
            """What of its metadata knows its incarnation."""

        @property
        def broker_id(self) -> int:
            """Its id."""

        @property
        def cache(self) -> MetadataSource:
            """The cluster as it knows it."""

        @property
        def connect(self) -> Connect:
            """The way to other brokers."""

        @property
        def clock(self) -> Clock:
            """Its time."""

        @property
        def config(self) -> BrokerConfig:
            """As it is now."""

        @property
        def membership(self) -> Reporter:
            """This broker in the cluster."""

        @property
        def replicas(self) -> ReplicaManager:
            """Its partitions."""

        @property
        def slices(self) -> SliceScheduler:
            """Work in turns."""

        @property
        def store(self) -> MetadataStore:
            """The coordination tree."""


class Replication:
    """Fetches of followers, in-sync sets of leaders, and the session that they all depend on."""

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        config, clock, replicas = broker.config, broker.clock, broker.replicas
        broker_id = broker.broker_id
        self.leader_throttle = LeaderThrottle(broker_id, config, self._topic_config, clock)
        self.follower_throttle = FollowerThrottle(broker_id, config, self._topic_config, clock)
        self.fetchers = ReplicaFetchers(
            broker_id,
            replicas,
            config,
            clock,
            broker.slices,
            self._connect,
            lambda: broker.applier.broker_epoch,
            self.follower_throttle,
            broker.membership.report_leader,
        )
        self.isr_changes = IsrChanges(
            replicas, broker.store, broker.cache, clock, broker.slices, lambda: config.int("replica.lag.time.max.ms") / 1000
        )
        self.doubt = SessionDoubt(replicas, clock, lambda: config.int("zookeeper.session.timeout.ms") / 1000)
        self.follow = self.fetchers.follow
        self.unfollow = self.fetchers.unfollow
        self.look = self.isr_changes.look
        broker.store.listen(self.doubt.heard)

    def close(self) -> None:
        """The broker stops: fetch nothing, and change no in-sync set any more."""
        self.doubt.close()
        self.isr_changes.close()
        self.fetchers.close()

    def report_offline(self) -> None:
        """Have the controller know that replicas of this broker are offline, or are not any more: it asks which are, and has others lead
        these. Where the tree cannot be reached, it finds that out when it sends states the next time, as after another registration.
        """
        self._broker.store.write([PutLogDirEvent(self._broker.broker_id)], _log_failure)

    def statistics(self) -> dict[str, int]:
        """How many of what there are."""
        return self.fetchers.statistics()

    def _topic_config(self, topic: str) -> "Mapping[str, str]":
        return self._broker.cache.snapshot.topic_config(topic)

    def _connect(self, broker_id: int) -> "PeerConnection | None":
        broker, config = self._broker, self._broker.config
        source = broker.cache.snapshot.brokers.get(broker_id)
        if source is None:
            return None
        bytes_max = config.int("replica.fetch.response.max.bytes") + config.int("socket.request.max.bytes")  # a batch may be longer
        return broker.connect(source, "follower", in_flight_max=REQUESTS_OUT_MAX, frame_bytes_max=bytes_max)


def _log_failure(outcome: object) -> None:
    if isinstance(outcome, CoordinationError):
        _LOG.error("controller not notified of replicas that went offline or came back: reason=%s", outcome)
