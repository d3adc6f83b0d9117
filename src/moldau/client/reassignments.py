"""Requests about which brokers have the replicas of partitions, and which of them lead (KIP-455, KIP-460)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError, failure
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import partition_reassignments as messages

PREFERRED, UNCLEAN = 0, 1


class Reassignment(NamedTuple):
    """What is under way of a partition: all its replicas, and which of them are added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it is completed."""
        return tuple(each for each in self.replicas if each not in self.removing)


class Reassignments:
    """Reassignments and elections of `cluster`, asked of its controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.timeout_s * 1000)

    def alter(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, RequestFailedError]:
        """Begin, replace, or with None cancel reassignments; what was refused, with the reason."""
        topics = [
            messages.ReassignableTopic(name, [messages.ReassignablePartition(index, _ids(targets, name, index)) for index in indexes])
            for name, indexes in _by_topic(targets).items()
        ]

        def read(response: messages.AlterPartitionReassignmentsResponse) -> dict[TopicPartition, RequestFailedError]:
            _check(response.error_code, "reassignments", response.error_message)
            refused: dict[TopicPartition, RequestFailedError] = {}
            for topic in response.responses:
                for each in topic.partitions:
                    if each.error_code:
                        where = TopicPartition(topic.name, each.partition_index)
                        refused[where] = failure(each.error_code, where, each.error_message)
            return refused

        request = messages.AlterPartitionReassignmentsRequest(self._timeout_ms, True, topics)
        return self._cluster.at_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, read)

    def ongoing(self) -> dict[TopicPartition, Reassignment]:
        """Everything that is under way, by partition."""

        def read(response: messages.ListPartitionReassignmentsResponse) -> dict[TopicPartition, Reassignment]:
            _check(response.error_code, "reassignments", response.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): Reassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in sorted(response.topics, key=lambda topic: topic.name)
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            }

        request = messages.ListPartitionReassignmentsRequest(self._timeout_ms, None)
        return self._cluster.at_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, read)

    def elect(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
    ) -> dict[TopicPartition, RequestFailedError | None]:
        """Have preferred leaders elected; `unclean`: leaders of partitions without one, which may lose records.

        None is all partitions. The outcome by partition: None, or an error, ELECTION_NOT_NEEDED where it is led so already.
        """
        wanted = None
        if partitions is not None:
            wanted = [messages.TopicPartitions(name, indexes) for name, indexes in _by_topic(partitions).items()]

        def read(response: messages.ElectLeadersResponse) -> dict[TopicPartition, RequestFailedError | None]:
            _check(response.error_code, "elections", None)
            outcomes: dict[TopicPartition, RequestFailedError | None] = {}
            for topic in response.replica_election_results:
                for each in topic.partition_result:
                    where = TopicPartition(topic.topic, each.partition_id)
                    outcomes[where] = failure(each.error_code, where, each.error_message) if each.error_code else None
            return outcomes

        request = messages.ElectLeadersRequest(UNCLEAN if unclean else PREFERRED, wanted, self._timeout_ms)
        return self._cluster.at_controller(ApiKey.ELECT_LEADERS, request, read)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        by_topic.setdefault(name, []).append(index)
    return by_topic


def _ids(targets: Mapping[TopicPartition, Sequence[int] | None], name: str, index: int) -> list[int] | None:
    replicas = targets[TopicPartition(name, index)]
    return None if replicas is None else list(replicas)


def _check(code: int, subject: str, detail: str | None) -> None:
    if code != ErrorCode.NONE:
        raise failure(code, subject, detail)
