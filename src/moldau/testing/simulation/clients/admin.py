"""What an administrator asks: topics, configurations, records to delete; and the look-ups of offsets, epochs and producers."""

from collections.abc import Mapping, Sequence
from typing import Any

from moldau.model.errors import ErrorCode, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from moldau.protocol.messages.configs import IncrementalAlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResource
from moldau.protocol.messages.group_admin import DescribeGroupsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_lookups import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from moldau.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from moldau.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.testing.simulation.clients.context import ClientContext
from moldau.wire.brokers import REQUEST_TIMEOUT_S, Brokers, CoordinatorType, check
from moldau.wire.connection import Address, ClientConnection

INSIST_S = 120.0
"""Twice as long as faults happen in a run: who gives up has asked for a minute without faults."""
LATEST = -1
EARLIEST = -2
_TOPIC, _BROKER = 2, 4
"""Kinds of resources whose configurations are altered."""
_SET, _DELETE = 0, 1
_DEFAULT = -1
"""Of the brokers, for the number of replicas."""
_TIMEOUT_MS = int(REQUEST_TIMEOUT_S * 1000)


async def _ask_leader(brokers: Brokers, partition: TopicPartition, api_key: ApiKey, request: Any) -> Any:
    """The partition's entry of a response; a leader that is none any more is looked up again. PeerError, RequestLostError."""
    connection = await brokers.connection(await brokers.leader(partition))
    try:
        response = await connection.send(api_key, request, timeout_s=REQUEST_TIMEOUT_S)
        (topic,) = response.topics
        (found,) = topic.partitions
        check(found.error_code, f"partition {partition}")
    except Exception:
        brokers.forget_topic(partition.topic)
        raise
    return found


async def list_offset(brokers: Brokers, partition: TopicPartition, timestamp: int, *, committed: bool) -> int:
    """The first offset not older than a time, or of LATEST or EARLIEST; -1 for none. Insists."""
    topics = [ListOffsetsTopic(partition.topic, [ListOffsetsPartition(partition.partition, timestamp=timestamp)])]
    request = ListOffsetsRequest(-1, int(committed), topics, _TIMEOUT_MS)
    found = await brokers.insist(lambda: _ask_leader(brokers, partition, ApiKey.LIST_OFFSETS, request), INSIST_S)
    return int(found.offset)


class SimulatedAdmin:
    """Each method insists while errors pass, and raises PeerError for those that do not.

    A request whose answer was lost is made again, and then refused because it has succeeded: that counts as success where it was lost.
    """

    def __init__(self, context: ClientContext) -> None:
        self.brokers = Brokers(context)
        self._is_controller = context.is_controller

    # Topics

    async def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic. TOPIC_ALREADY_EXISTS."""
        settings = [CreatableTopicConfig(key, str(value)) for key, value in (configs or {}).items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, _DEFAULT, configs=settings)], _TIMEOUT_MS)
        await self._change(ApiKey.CREATE_TOPICS, request, name, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def grow_topic(self, name: str, partitions: int) -> None:
        """Have it have so many partitions. INVALID_PARTITIONS if it has them already."""
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], _TIMEOUT_MS)
        await self._change(ApiKey.CREATE_PARTITIONS, request, name, ErrorCode.INVALID_PARTITIONS)
        self.brokers.forget_topic(name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. UNKNOWN_TOPIC_OR_PARTITION.

        A topic is unknown as soon as its deletion has begun, with Kafka too, and its name is taken until that has ended: where the answer
        that says so was lost, and where a broker with a replica is away, this waits for it.
        """
        request = DeleteTopicsRequest([DeleteTopicState(name)], [name], _TIMEOUT_MS)
        is_inferred = await self._change(ApiKey.DELETE_TOPICS, request, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_inferred or len(self.brokers.context.servers) > 1:
            while not await self.brokers.insist(lambda: self._is_free(name), INSIST_S):
                await self.brokers.back_off()
        self.brokers.forget_topic(name)

    async def _is_free(self, name: str) -> bool:
        """Whether a topic of that name might be created."""
        connection = await self.brokers.controller()
        request = CreateTopicsRequest([CreatableTopic(name, 1, _DEFAULT)], _TIMEOUT_MS, True)
        response = await connection.send(ApiKey.CREATE_TOPICS, request, timeout_s=REQUEST_TIMEOUT_S)
        self._check_controller(connection)
        (found,) = response.topics
        if found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        check(found.error_code, f"topic {name}")
        return True

    async def configure_topic(self, name: str, configs: Mapping[str, object | None]) -> None:
        """Set configurations; None: back to the default."""
        await self._configure(_TOPIC, name, configs)

    async def configure_brokers(self, configs: Mapping[str, object | None]) -> None:
        """The same of all brokers."""
        await self._configure(_BROKER, "", configs)

    async def _configure(self, kind: int, name: str, configs: Mapping[str, object | None]) -> None:
        changes = [
            IncrementalAlterableConfig(key, _DELETE if value is None else _SET, None if value is None else str(value))
            for key, value in configs.items()
        ]
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, changes)])
        await self._change(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, name or "brokers", None)

    # Replicas

    async def move_partition(self, partition: TopicPartition, replicas: Sequence[int] | None) -> None:
        """Have these brokers have its replicas, or with None call off what is under way. PeerError."""
        wanted = ReassignablePartition(partition.partition, None if replicas is None else list(replicas))
        request = AlterPartitionReassignmentsRequest(_TIMEOUT_MS, topics=[ReassignableTopic(partition.topic, [wanted])])
        response = await self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        for topic in response.responses:
            for found in topic.partitions:
                check(found.error_code, f"partition {partition}")

    async def replicas_of(self, partition: TopicPartition) -> list[int]:
        """The brokers that have its replicas."""

        async def ask() -> list[int]:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False)
            (topic,) = (await self.brokers.ask(ApiKey.METADATA, request)).topics
            check(topic.error_code, f"topic {partition.topic}")
            (found,) = [each for each in topic.partitions if each.partition_index == partition.partition]
            return list(found.replica_nodes)

        return await self.brokers.insist(ask, INSIST_S)

    async def elect_preferred(self, topic: str, partitions: Sequence[int]) -> None:
        """Have the first replicas lead. Those that cannot do not."""
        await self._ask_controller(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, [TopicPartitions(topic, list(partitions))], _TIMEOUT_MS))

    async def _ask_controller(self, api_key: ApiKey, request: Any) -> Any:
        async def ask() -> Any:
            response = await (await self.brokers.controller()).send(api_key, request, timeout_s=REQUEST_TIMEOUT_S * 2)
            check(response.error_code, "controller")
            return response

        return await self.brokers.insist(ask, INSIST_S)

    async def _change(self, api_key: ApiKey, request: Any, name: str, already: ErrorCode | None) -> bool:
        """Whether the last answer was `already`, which after a lost one counts as success."""
        was_asked = is_inferred = False

        async def ask() -> int:
            nonlocal was_asked, is_inferred
            connection = await self.brokers.controller()
            again, was_asked = was_asked, True
            response = await connection.send(api_key, request, timeout_s=REQUEST_TIMEOUT_S * 2)
            (found,) = getattr(response, _RESULTS[api_key])
            code = known_error(found.error_code)
            is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is not ErrorCode.NONE and (is_unknown or not code.retriable):
                was_asked = again  # what it refuses it has not done
                self._check_controller(connection)
                was_asked = True
            if is_unknown:
                passes = api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS and len(self.brokers.context.servers) > 1  # a broker that lags says so
            else:
                passes = code.retriable or code is ErrorCode.INVALID_REPLICATION_FACTOR
            if passes:
                check(code, f"topic {name}")
            is_inferred = again and code is already
            return ErrorCode.NONE if is_inferred else code

        check(await self.brokers.insist(ask, INSIST_S), f"topic {name}")
        return is_inferred

    def _check_controller(self, connection: ClientConnection) -> None:
        """PeerError NOT_CONTROLLER, with which one asks again, for what a deposed controller says."""
        if not self._is_controller(connection.address):
            check(ErrorCode.NOT_CONTROLLER, "a controller that was deposed has answered")

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """Delete a partition's records before an offset, -1: all that are committed; its first offset now."""
        request = DeleteRecordsRequest(
            [DeleteRecordsTopic(partition.topic, [DeleteRecordsPartition(partition.partition, before_offset)])], _TIMEOUT_MS
        )
        found = await self.brokers.insist(lambda: _ask_leader(self.brokers, partition, ApiKey.DELETE_RECORDS, request), INSIST_S)
        return int(found.low_watermark)

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has, asked afresh."""

        async def ask() -> int:
            self.brokers.forget_topic(topic)
            return len((await self.brokers.topic(topic)).leaders)

        return await self.brokers.insist(ask, INSIST_S)

    # Log directories of one broker, which is asked once

    async def log_dirs(self, broker: Address) -> dict[str, list[TopicPartition]]:
        """The directories that are in service, and whose replicas they have: copies that grow there are left out. WorldError."""
        connection = await self.brokers.connection(broker)
        response = await connection.send(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), timeout_s=REQUEST_TIMEOUT_S)
        return {
            found.log_dir: [
                TopicPartition(topic.name, each.partition_index)
                for topic in found.topics
                for each in topic.partitions
                if not each.is_future_key
            ]
            for found in response.results
            if not found.error_code
        }

    async def move_log(self, broker: Address, partition: TopicPartition, path: str) -> None:
        """Begin to move a replica to a directory; to the one that it is in: call off what was begun. PeerError, WorldError."""
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(partition.topic, [partition.partition])])])
        connection = await self.brokers.connection(broker)
        response = await connection.send(ApiKey.ALTER_REPLICA_LOG_DIRS, request, timeout_s=REQUEST_TIMEOUT_S)
        for topic in response.results:
            for found in topic.partitions:
                check(found.error_code, f"partition {partition}")

    # Look-ups

    async def offset(self, partition: TopicPartition, timestamp: int, *, committed: bool) -> int:
        """As `list_offset`."""
        return await list_offset(self.brokers, partition, timestamp, committed=committed)

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to one, and the offset after its last record; (-1, -1) if there is none."""
        entry = OffsetForLeaderPartition(partition.partition, -1, epoch)
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(partition.topic, [entry])])
        found = await self.brokers.insist(lambda: _ask_leader(self.brokers, partition, ApiKey.OFFSET_FOR_LEADER_EPOCH, request), INSIST_S)
        return found.leader_epoch, found.end_offset

    async def producers(self, partition: TopicPartition) -> Any:
        """What a partition remembers of its producers: `ProducerState` of DescribeProducers."""
        request = DescribeProducersRequest([TopicRequest(partition.topic, [partition.partition])])
        found = await self.brokers.insist(lambda: _ask_leader(self.brokers, partition, ApiKey.DESCRIBE_PRODUCERS, request), INSIST_S)
        return found.active_producers

    async def abort_transactions(self, partition: TopicPartition) -> None:
        """End the transactions that are open in a partition, whatever their coordinators know of them."""
        topics = [WritableTxnMarkerTopic(partition.topic, [partition.partition])]
        markers = [
            WritableTxnMarker(each.producer_id, each.producer_epoch, False, topics, max(each.coordinator_epoch, 0))
            for each in await self.producers(partition)
            if each.current_txn_start_offset >= 0
        ]

        async def ask() -> None:
            connection = await self.brokers.connection(await self.brokers.leader(partition))
            response = await connection.send(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers), timeout_s=REQUEST_TIMEOUT_S)
            for marker in response.markers:
                check(marker.topics[0].partitions[0].error_code, f"partition {partition}")

        await self.brokers.insist(ask, INSIST_S)

    async def transactions(self) -> dict[str, str]:
        """The state of each transactional id."""
        response = await self.brokers.insist(lambda: self.brokers.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest()), INSIST_S)
        check(response.error_code, "transactions")
        return {each.transactional_id: each.transaction_state for each in response.transaction_states}

    async def group(self, group_id: str) -> Any:
        """State and members of a group: `DescribedGroup` of DescribeGroups."""

        async def ask() -> Any:
            kind = CoordinatorType.GROUP
            response = await self.brokers.ask_coordinator(kind, group_id, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest([group_id]))
            (found,) = response.groups
            self.brokers.check_coordinator(kind, group_id, found.error_code)
            return found

        return await self.brokers.insist(ask, INSIST_S)

    def close(self) -> None:
        """Disconnect."""
        self.brokers.close()


_RESULTS = {
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.CREATE_PARTITIONS: "results",
    ApiKey.DELETE_TOPICS: "responses",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "responses",
}
