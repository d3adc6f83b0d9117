"""Clients of groups and transactions at the brokers of a `ClusterWorld`.

at = ClusterClient(cluster, coordinator_of(cluster, "g"))
member = join_group(cluster, "g")                   # a stable group with one consumer of "t"
commit(at, "g", {("t", 0): 5})                      # the requests of `group_requests`
"""

from typing import Any

from moldau.broker.broker import Broker
from moldau.cluster.internal_topics import OFFSETS, TRANSACTIONS
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.messages.transactions import TxnOffsetCommitRequest
from support.cluster_world import ClusterWorld
from support.group_requests import HasBroker, Joined, name
from support.memberships import subscription

GROUP, TRANSACTION = 0, 1
TOPICS = {GROUP: OFFSETS.name, TRANSACTION: TRANSACTIONS.name}
SETTINGS = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
}


class ClusterClient:
    """A client of one broker, as `group_requests` wants it."""

    def __init__(self, cluster: ClusterWorld, broker_id: int) -> None:
        self.world: HasBroker = self
        self._cluster = cluster
        self._broker_id = broker_id

    @property
    def broker(self) -> Broker:
        return self._cluster.broker(self._broker_id)

    def ask(self, request: Any, version: int) -> Any:
        return self._cluster.ask(self._broker_id, request, version)


def found(cluster: ClusterWorld, key: str, kind: int = GROUP, *, at: int | None = None) -> tuple[str, int]:
    """What FindCoordinator answers at a broker, at any if none is named: a code, and the broker's id."""
    asked = min(cluster.processes) if at is None else at
    (answer,) = cluster.ask(asked, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators
    return name(answer.error_code), answer.node_id


def coordinator_of(cluster: ClusterWorld, key: str, kind: int = GROUP) -> int:
    """The coordinator of a group or a transactional id, once there is one that serves it."""
    while True:
        error, broker_id = found(cluster, key, kind)
        if error == "NONE" and broker_id in cluster.processes:
            coordinators = cluster.broker(broker_id).coordinators
            runtime = coordinators.groups.runtime if kind == GROUP else coordinators.transactions.runtime
            if runtime.log.partition_for(key) in [each.partition for each in runtime.active()]:
                return broker_id
        cluster.advance(0.01)


def partition_of(cluster: ClusterWorld, key: str, kind: int = GROUP) -> int:
    """The partition of the internal topic that a key belongs to."""
    coordinators = cluster.broker(min(cluster.processes)).coordinators
    topic = coordinators.offsets_topic if kind == GROUP else coordinators.transactions_topic
    return topic.partition_for(key)


def join_group(cluster: ClusterWorld, group: str, *, instance: str | None = None, session_timeout_ms: int = 30_000) -> Joined:
    """Make a stable group with one member, which consumes ``t``."""
    at = coordinator_of(cluster, group)
    protocol = JoinGroupRequestProtocol("range", subscription("t"))
    request = JoinGroupRequest(
        group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[protocol],
    )
    if instance is None:
        request.member_id = cluster.ask(at, request, 5).member_id
    joined = cluster.ask(at, request, 5)
    assert joined.error_code == 0, name(joined.error_code)
    assignment = SyncGroupRequestAssignment(joined.member_id, b"all of it")
    sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, instance, "consumer", "range", [assignment])
    assert cluster.ask(at, sync, 5).error_code == 0
    return Joined(joined.member_id, joined.generation_id)


def heartbeat(cluster: ClusterWorld, broker_id: int, group: str, member: Joined, instance: str | None = None) -> str:
    """What a member's heartbeat is answered."""
    return ErrorCode(cluster.ask(broker_id, HeartbeatRequest(group, member.generation, member.member_id, instance), 4).error_code).name


class RoutedAsk:
    """Sends each request of a `RawProducer` where it belongs, to the coordinator or leader of the moment. What is not retried there is not
    retried here.
    """

    def __init__(self, cluster: ClusterWorld, transactional_id: str, group: str = "g") -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._group = group

    def __call__(self, request: Any, version: int) -> Any:
        return self._cluster.ask(self.broker_for(request), request, version)

    def broker_for(self, request: Any) -> int:
        """The broker that a request is sent to."""
        match request:
            case ProduceRequest():
                (topic,) = request.topic_data
                return self._cluster.partition(topic.name, topic.partition_data[0].index).leader
            case FetchRequest():
                (read,) = request.topics
                return self._cluster.partition(read.topic, read.partitions[0].partition).leader
            case TxnOffsetCommitRequest():
                return coordinator_of(self._cluster, self._group)
            case FindCoordinatorRequest():
                return min(self._cluster.processes)
            case _:
                return coordinator_of(self._cluster, self._transactional_id, TRANSACTION)
