"""Administration of a cluster: topics and configurations. One call, one resource; an answer with an error raises RequestFailedError."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from moldau.client.cluster import Cluster
from moldau.client.errors import failure
from moldau.client.partition_requests import delete_records_request, read_delete_records
from moldau.model.config.definition import ConfigSource
from moldau.model.errors import ProtocolError
from moldau.model.identity import BrokerId, Offset, TopicPartition
from moldau.protocol.api_keys import ApiKey

BROKER_DEFAULT = -1
"""As a number of partitions or replicas: the broker's own default (KIP-464)."""

_SET, _DELETE = 0, 1
_SOURCES = {source.value: source for source in ConfigSource}


class AdminResourceType(IntEnum):
    """What has configurations."""

    TOPIC = 2
    BROKER = 4


class AdminResource(NamedTuple):
    """A topic, a broker, or with an empty name the defaults of all brokers."""

    type: AdminResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}" if self.name else "defaults of all brokers"


class ConfigEntry(NamedTuple):
    """One configuration of a resource. `value` is None where it is not set, or secret."""

    name: str
    value: str | None
    source: ConfigSource | None
    read_only: bool
    sensitive: bool
    documentation: str | None


class CreatedTopic(NamedTuple):
    """A topic as created; -1 for what the broker does not send."""

    name: str
    id: bytes
    partitions: int
    replication_factor: int


class ConfigUpdate(NamedTuple):
    """What to change of a resource's configurations."""

    set: Mapping[str, str] = MappingProxyType({})
    delete: Iterable[str] = ()


class Admin:
    """Changes to `cluster`, made at its controller (or at the leaders, or at the broker concerned)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.timeout_s * 1000)

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        *,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic, or only check whether it could be. RequestFailedError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG, and so on.

        `assignments`: the replicas of each partition, which decide how many there are.
        """
        from moldau.protocol.messages import topics as messages

        topic = messages.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[messages.CreatableReplicaAssignment(number, [*replicas]) for number, replicas in enumerate(assignments)],
            configs=[messages.CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
        )
        request = messages.CreateTopicsRequest([topic], self._timeout_ms, validate_only)

        def read(response: messages.CreateTopicsResponse) -> CreatedTopic:
            result = _only(response.topics, f"topic {name}")
            return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)

        return self._cluster.at_controller(ApiKey.CREATE_TOPICS, request, read)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. RequestFailedError: UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        from moldau.protocol.messages import topics as messages

        request = messages.DeleteTopicsRequest([messages.DeleteTopicState(name)], timeout_ms=self._timeout_ms)

        def read(response: messages.DeleteTopicsResponse) -> None:
            _only(response.responses, f"topic {name}")

        self._cluster.at_controller(ApiKey.DELETE_TOPICS, request, read)
        self._cluster.forget_topic(name)

    def create_partitions(
        self, topic: str, count: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Raise the number of partitions of a topic to `count`. RequestFailedError: INVALID_PARTITIONS if it is not a raise.

        `assignments`: the replicas of each new partition; None: where the controller puts them.
        """
        from moldau.protocol.messages import topics as messages

        chosen = None if assignments is None else [messages.CreatePartitionsAssignment([*replicas]) for replicas in assignments]
        request = messages.CreatePartitionsRequest([messages.CreatePartitionsTopic(topic, count, chosen)], self._timeout_ms, validate_only)

        def read(response: messages.CreatePartitionsResponse) -> None:
            _only(response.results, f"topic {topic}")

        self._cluster.at_controller(ApiKey.CREATE_PARTITIONS, request, read)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete the records before an offset per partition (END_OF_LOG: all); the first offsets left."""

        def build(partitions: list[TopicPartition]) -> Any:
            return delete_records_request({where: before[where] for where in partitions}, self._timeout_ms)

        return self._cluster.at_leaders(ApiKey.DELETE_RECORDS, before, build, lambda response, _: read_delete_records(response))

    def describe_configs(self, resource: AdminResource, *, documentation: bool = False) -> list[ConfigEntry]:
        """All configurations of a resource by name, the defaults among them."""
        from moldau.protocol.messages import configs as messages

        wanted = messages.DescribeConfigsResource(resource.type, resource.name, None)
        response = self._at(resource, ApiKey.DESCRIBE_CONFIGS, messages.DescribeConfigsRequest([wanted], False, documentation))
        entries = _only(response.results, str(resource)).configs
        return sorted(map(_entry, entries), key=lambda entry: entry.name)

    def setting_names(self, resource: AdminResource) -> set[str]:
        """The names of all configurations of a resource. For the defaults of all brokers, of which brokers list only what is set, those of
        any one broker.
        """
        asked = resource
        if resource.type is AdminResourceType.BROKER and not resource.name:
            asked = AdminResource(AdminResourceType.BROKER, str(min(self._cluster.metadata([]).brokers)))
        return {entry.name for entry in self.describe_configs(asked)}

    def alter_configs(self, resource: AdminResource, changes: ConfigUpdate, *, validate_only: bool = False) -> None:
        """Change some configurations of a resource and leave the others (KIP-339). All or none."""
        from moldau.protocol.messages import configs as messages

        configs = [messages.IncrementalAlterableConfig(name, _SET, value) for name, value in changes.set.items()]
        configs += [messages.IncrementalAlterableConfig(name, _DELETE, None) for name in changes.delete]
        wanted = messages.IncrementalAlterConfigsResource(resource.type, resource.name, configs)
        response = self._at(resource, ApiKey.INCREMENTAL_ALTER_CONFIGS, messages.IncrementalAlterConfigsRequest([wanted], validate_only))
        _only(response.responses, str(resource))

    def partition_sizes(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Bytes on the leader's disk per partition; a partition whose leader does not answer for it is left out."""
        from moldau.protocol.messages import cluster as messages

        leaders: dict[BrokerId, dict[str, list[int]]] = {}
        for topic in self._cluster.metadata(topics).topics.values():
            for partition in topic.partitions:
                leaders.setdefault(partition.leader, {}).setdefault(topic.name, []).append(partition.partition)
        sizes: dict[TopicPartition, int] = {}
        for broker, wanted in leaders.items():
            if broker < 0:
                continue
            request = messages.DescribeLogDirsRequest([messages.DescribableLogDirTopic(name, ids) for name, ids in wanted.items()])
            response = self._cluster.at_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, request)
            for directory in response.results:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        if not partition.is_future_key:
                            sizes[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
        return sizes

    def _at(self, resource: AdminResource, api_key: ApiKey, message: Any) -> Any:
        """Ask the broker that a resource concerns: that broker for its own configurations, any broker for the rest."""
        if resource.type is AdminResourceType.BROKER and resource.name:
            return self._cluster.at_broker(BrokerId(int(resource.name)), api_key, message)
        return self._cluster.anywhere(api_key, message)


def _only(results: list[Any], subject: str) -> Any:
    """The one result that was asked for; RequestFailedError if it is an error."""
    if len(results) != 1:
        raise ProtocolError(f"{subject}: {len(results)} results where one was asked for")
    if results[0].error_code:
        raise failure(results[0].error_code, subject, results[0].error_message)
    return results[0]


def _entry(entry: Any) -> ConfigEntry:
    source = _SOURCES.get(entry.config_source)
    return ConfigEntry(entry.name, entry.value, source, entry.read_only, entry.is_sensitive, entry.documentation or None)
