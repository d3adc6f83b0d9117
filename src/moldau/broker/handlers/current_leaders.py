"""Who leads what a client asked this broker for in vain, in the answers to Produce and Fetch (KIP-951).

A client that is named the leader goes there at once. Without that it asks for metadata, after `retry.backoff.ms` and perhaps a broker that
has not heard of the new leader yet.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from moldau.model.errors import ErrorCode
from moldau.protocol.fast.fetch import FetchPartitionResult
from moldau.protocol.fast.produce import ProducePartitionResult
from moldau.protocol.fast.writing import LeaderEndpoint

if TYPE_CHECKING:
    from moldau.broker.handlers.services import MetadataServices
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.broker.security import Channel

    class Services(MetadataServices, Protocol):
        """What is used of the broker."""

        @property
        def replicas(self) -> "ReplicaManager":
            """Which may know of a leader before the metadata has it."""


R = TypeVar("R", ProducePartitionResult, FetchPartitionResult)

PRODUCE_FIRST, FETCH_FIRST = 10, 16
"""The versions from which on answers name leaders with their addresses."""
_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def named(
    services: "Services", channel: "Channel", topics: Sequence[tuple[bytes, Sequence[R]]], *, by_id: bool
) -> tuple[Sequence[tuple[bytes, Sequence[R]]], Sequence[LeaderEndpoint]]:
    """The results with the leaders of what other brokers lead, and where clients of this client's listener reach these. A leader without
    such an address is not named.
    """
    if not any(result.error_code in _ELSEWHERE for _, results in topics for result in results):
        return topics, ()
    listener, endpoints = channel.advertised.listener, dict[int, LeaderEndpoint]()

    def name_leader(topic: bytes, result: R) -> R:
        leader = services.replicas.leader_elsewhere(topic, result.partition, by_id=by_id) if result.error_code in _ELSEWHERE else None
        broker = None if leader is None else services.metadata.brokers.get(leader[0])
        endpoint = None if broker is None else broker.endpoint(listener)
        if leader is None or broker is None or endpoint is None:
            return result
        endpoints[leader[0]] = LeaderEndpoint(leader[0], endpoint.host, endpoint.port, broker.rack)
        return result._replace(current_leader=leader)

    found = [(topic, [name_leader(topic, result) for result in results]) for topic, results in topics]
    return found, list(endpoints.values())
