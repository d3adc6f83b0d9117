"""Markers that coordinators on other brokers send: which requests are carried out, and which coordinator may still end a transaction.

A request may arrive after its sender has given it up, over a connection that is lost at the sender. By then the same marker has come over
another connection, the transaction is complete, and its producer may have begun the next one, which the late marker would end: in
transactions of version 1 it has the same producer epoch. So each broker numbers its requests.
"""

from typing import TYPE_CHECKING

from moldau.cluster.internal_topics import TRANSACTIONS
from moldau.model.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.transactions.markers import Marker
    from moldau.cluster.snapshot import MetadataSnapshot


class MarkerReceipts:
    """What has come from each broker."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, int]] = {}
        """By broker: its registration, and the number of its latest request."""

    def accept(self, sender_id: int, sender_epoch: int, sequence: int, snapshot: "MetadataSnapshot") -> bool:
        """Whether to carry out a request: not one of a broker that does not live, nor one that came after a later one."""
        if sender_id not in snapshot.brokers or (sender_epoch, sequence) <= self._latest.get(sender_id, (0, 0)):
            return False
        self._latest = {each: latest for each, latest in self._latest.items() if each in snapshot.brokers}
        self._latest[sender_id] = sender_epoch, sequence
        return True


def check_coordinator(snapshot: "MetadataSnapshot", partition: "HostedPartition", marker: "Marker") -> None:
    """A marker is not of an earlier coordinator than its part of the transactions has now, as far as is known here. PeerError
    TRANSACTION_COORDINATOR_FENCED. A later one than is known here has been elected since.
    """
    topic = snapshot.topics.get(TRANSACTIONS.name)
    if topic is None or not 0 <= marker.state_partition < len(topic.partitions):
        return
    epoch = topic.partitions[marker.state_partition].leader_epoch
    if marker.coordinator_epoch < epoch:
        raise PeerError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"{partition.topic_partition}: marker of producer {marker.producer_id} is of coordinator epoch {marker.coordinator_epoch},"
            f" {TRANSACTIONS.name}-{marker.state_partition} has {epoch}",
        )
