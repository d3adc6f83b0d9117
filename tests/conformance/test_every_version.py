"""Whatever ApiVersions lists is answered, in every version, without an error and without cutting the connection.

One request per API does real work on a topic with records; it is asked in each advertised version. A handler that fills in a field which an
older version cannot carry would show here as a lost connection.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from moldau.client.connection import BrokerConnection
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import (
    cluster,
    configs,
    fetch,
    find_coordinator,
    group_admin,
    group_members,
    init_producer_id,
    metadata,
    offset_lookups,
    offsets,
    partition_reassignments,
    produce,
    topics,
    transaction_admin,
    transactions,
)
from moldau.protocol.messages.alter_mirror import AlterMirrorRequest
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.cluster import DescribeClusterRequest
from moldau.protocol.messages.configs import ListConfigResourcesRequest
from moldau.protocol.records.builder import encode_batch
from moldau.protocol.records.record import Record
from moldau.protocol.versions import CODEC
from moldau.testing.broker import Broker

TOPIC = "every-version"
TOPIC_RESOURCE = 2
FIRST_WITH_TOPIC_IDS = 13
FIRST_DELETE_BY_STATE = 6
FIRST_BATCHED_COORDINATORS = 4
FIRST_WITH_KNOWN_ID = 4
FIRST_WITH_PROTOCOL = 5
FIRST_WITH_SEVERAL_MEMBERS = 3
FIRST_OFFSETS_BY_ID = 10
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_SEVERAL_TRANSACTIONS = 4
FIRST_ADDING_BY_ITSELF = 5

fresh_names = map("made-{}".format, itertools.count())


class Session:
    """A connection to a broker, and the id of the topic that everything is done to."""

    def __init__(self, broker: Broker) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.broker = broker
        self.connection = BrokerConnection(host, int(port), timeout_s=10)
        asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)])
        self.topic_id: bytes = self.connection.request(ApiKey.METADATA, asked).topics[0].topic_id


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Broker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        session = Session(broker)
        for version in (3, CODEC[ApiKey.PRODUCE].max):
            session.connection.request(ApiKey.PRODUCE, produce_request(session, version), version=version)
        yield session
        session.connection.close()


def produce_request(session: Session, version: int) -> produce.ProduceRequest:
    batch = encode_batch([Record(0, 1_700_000_000_000, 0, b"key", b"value", [])])
    data = [produce.PartitionProduceData(0, batch)]
    by_id = version >= FIRST_WITH_TOPIC_IDS
    topic = (
        produce.TopicProduceData(topic_id=session.topic_id, partition_data=data)
        if by_id
        else produce.TopicProduceData(TOPIC, partition_data=data)
    )
    return produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch_request(session: Session, version: int) -> fetch.FetchRequest:
    wanted = [fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    by_id = version >= FIRST_WITH_TOPIC_IDS
    topic = fetch.FetchTopic(topic_id=session.topic_id, partitions=wanted) if by_id else fetch.FetchTopic(TOPIC, partitions=wanted)
    return fetch.FetchRequest(max_wait_ms=100, min_bytes=1, topics=[topic])


def list_offsets_request(session: Session, version: int, time: int = -1) -> offset_lookups.ListOffsetsRequest:
    partitions = [offset_lookups.ListOffsetsPartition(partition_index=0, timestamp=time)]
    return offset_lookups.ListOffsetsRequest(replica_id=-1, topics=[offset_lookups.ListOffsetsTopic(TOPIC, partitions)])


def metadata_request(session: Session, version: int) -> metadata.MetadataRequest:
    topic = metadata.MetadataRequestTopic(name=TOPIC)
    return metadata.MetadataRequest([topic], include_topic_authorized_operations=version >= 8)


def create_topics_request(session: Session, version: int) -> topics.CreateTopicsRequest:
    configs = [topics.CreatableTopicConfig("retention.ms", "1000")]
    return topics.CreateTopicsRequest([topics.CreatableTopic(next(fresh_names), 1, 1, configs=configs)], 1000)


def delete_topics_request(session: Session, version: int) -> topics.DeleteTopicsRequest:
    name = next(fresh_names)
    session.broker.create_topic(name)
    if version >= FIRST_DELETE_BY_STATE:
        return topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name)], timeout_ms=1000)
    return topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)


def alter_replica_log_dirs_request(session: Session, version: int) -> Any:
    """Where it is."""
    (found,) = session.connection.request(ApiKey.DESCRIBE_LOG_DIRS, cluster.DescribeLogDirsRequest(None), version=2).results
    return cluster.AlterReplicaLogDirsRequest([cluster.AlterReplicaLogDir(found.log_dir, [cluster.AlterReplicaLogDirTopic(TOPIC, [0])])])


def create_partitions_request(session: Session, version: int) -> topics.CreatePartitionsRequest:
    name = next(fresh_names)
    session.broker.create_topic(name)
    return topics.CreatePartitionsRequest([topics.CreatePartitionsTopic(name, 3)], 1000)


def delete_records_request(session: Session, version: int) -> topics.DeleteRecordsRequest:
    partitions = [topics.DeleteRecordsPartition(1, 0)]
    return topics.DeleteRecordsRequest([topics.DeleteRecordsTopic(TOPIC, partitions)], 1000)


def describe_configs_request(session: Session, version: int) -> configs.DescribeConfigsRequest:
    resources = [
        configs.DescribeConfigsResource(TOPIC_RESOURCE, TOPIC, None),
        configs.DescribeConfigsResource(4, "0", None),
    ]
    return configs.DescribeConfigsRequest(resources, include_synonyms=True, include_documentation=version >= 3)


def alter_configs_request(session: Session, version: int) -> configs.AlterConfigsRequest:
    change = configs.AlterConfigsResource(TOPIC_RESOURCE, TOPIC, [configs.AlterableConfig("retention.ms", "-1")])
    return configs.AlterConfigsRequest([change])


def incremental_request(session: Session, version: int) -> configs.IncrementalAlterConfigsRequest:
    config = configs.IncrementalAlterableConfig("retention.ms", 0, "-1")
    return configs.IncrementalAlterConfigsRequest([configs.IncrementalAlterConfigsResource(TOPIC_RESOURCE, TOPIC, [config])])


def leader_epoch_request(session: Session, version: int) -> offset_lookups.OffsetForLeaderEpochRequest:
    partition = offset_lookups.OffsetForLeaderPartition(0, leader_epoch=0)
    return offset_lookups.OffsetForLeaderEpochRequest(topics=[offset_lookups.OffsetForLeaderTopic(TOPIC, [partition])])


def describe_topics_request(session: Session, version: int) -> cluster.DescribeTopicPartitionsRequest:
    return cluster.DescribeTopicPartitionsRequest([cluster.TopicRequest(TOPIC)])


def find_coordinator_request(session: Session, version: int) -> find_coordinator.FindCoordinatorRequest:
    if version >= FIRST_BATCHED_COORDINATORS:
        return find_coordinator.FindCoordinatorRequest(coordinator_keys=["group"])
    return find_coordinator.FindCoordinatorRequest(key="group")


def join_group_request(session: Session, version: int) -> group_members.JoinGroupRequest:
    """For a group of its own; from version 4 on with the id that it was told."""
    protocols = [group_members.JoinGroupRequestProtocol("range", b"")]
    request = group_members.JoinGroupRequest(next(fresh_names), 30_000, 30_000, protocol_type="any", protocols=protocols)
    ready(session, find_coordinator.FindCoordinatorRequest(request.group_id))
    if version >= FIRST_WITH_KNOWN_ID:
        told = session.connection.request(ApiKey.JOIN_GROUP, request, version=version)
        assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = told.member_id
    return request


def ready(session: Session, request: find_coordinator.FindCoordinatorRequest) -> None:
    """Have the coordinator look after the group."""
    assert session.connection.request(ApiKey.FIND_COORDINATOR, request, version=2).error_code == ErrorCode.NONE


def joined(session: Session) -> tuple[str, int, str]:
    """A group with one member: its id, generation and member."""
    request = join_group_request(session, 9)
    answer = session.connection.request(ApiKey.JOIN_GROUP, request, version=9)
    return request.group_id, answer.generation_id, answer.member_id


def sync_group_request(session: Session, version: int) -> group_members.SyncGroupRequest:
    kind, protocol = ("any", "range") if version >= FIRST_WITH_PROTOCOL else (None, None)
    return group_members.SyncGroupRequest(*joined(session), None, kind, protocol)


def leave_group_request(session: Session, version: int) -> group_members.LeaveGroupRequest:
    group, _, member = joined(session)
    if version >= FIRST_WITH_SEVERAL_MEMBERS:
        return group_members.LeaveGroupRequest(group, members=[group_members.MemberIdentity(member)])
    return group_members.LeaveGroupRequest(group, member)


def committing_group(session: Session) -> str:
    """A group of its own, without members."""
    group = next(fresh_names)
    ready(session, find_coordinator.FindCoordinatorRequest(group))
    return group


def offset_commit_request(session: Session, version: int, group: str | None = None) -> offsets.OffsetCommitRequest:
    by_id = version >= FIRST_OFFSETS_BY_ID
    partitions = [offsets.OffsetCommitRequestPartition(0, 1, 0 if version >= 6 else -1, "text")]
    topic = offsets.OffsetCommitRequestTopic("" if by_id else TOPIC, session.topic_id if by_id else bytes(16), partitions)
    return offsets.OffsetCommitRequest(group or committing_group(session), topics=[topic])


def committed_group(session: Session) -> str:
    """A group that has committed an offset."""
    group = committing_group(session)
    session.connection.request(ApiKey.OFFSET_COMMIT, offset_commit_request(session, 9, group), version=9)
    return group


def offset_fetch_request(session: Session, version: int) -> offsets.OffsetFetchRequest:
    group = committed_group(session)
    if version < FIRST_WITH_SEVERAL_GROUPS:
        return offsets.OffsetFetchRequest(group, [offsets.OffsetFetchRequestTopic(TOPIC, [0])])
    by_id = version >= FIRST_OFFSETS_BY_ID
    topic = offsets.OffsetFetchRequestTopics("" if by_id else TOPIC, session.topic_id if by_id else bytes(16), [0])
    return offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup(group, topics=[topic])])


def offset_delete_request(session: Session, version: int) -> group_admin.OffsetDeleteRequest:
    topic = group_admin.OffsetDeleteRequestTopic(TOPIC, [group_admin.OffsetDeleteRequestPartition(0)])
    return group_admin.OffsetDeleteRequest(committed_group(session), [topic])


def transactional(session: Session) -> tuple[str, int, int]:
    """A transactional id of its own, with its producer's id and epoch."""
    transactional_id = next(fresh_names)
    wanted = find_coordinator.FindCoordinatorRequest(transactional_id, 1)
    assert session.connection.request(ApiKey.FIND_COORDINATOR, wanted, version=2).error_code == ErrorCode.NONE
    request = init_producer_id.InitProducerIdRequest(transactional_id, 60_000)
    answer = session.connection.request(ApiKey.INIT_PRODUCER_ID, request, version=4)
    assert answer.error_code == ErrorCode.NONE
    return transactional_id, answer.producer_id, answer.producer_epoch


def add_partitions_request(session: Session, version: int) -> transactions.AddPartitionsToTxnRequest:
    transactional_id, producer_id, epoch = transactional(session)
    topics = [transactions.AddPartitionsToTxnTopic(TOPIC, [1])]
    if version < FIRST_WITH_SEVERAL_TRANSACTIONS:
        return transactions.AddPartitionsToTxnRequest([], transactional_id, producer_id, epoch, topics)
    transaction = transactions.AddPartitionsToTxnTransaction(transactional_id, producer_id, epoch, False, topics)
    return transactions.AddPartitionsToTxnRequest([transaction])


def txn_offset_commit_request(session: Session, version: int) -> transactions.TxnOffsetCommitRequest:
    transactional_id, producer_id, epoch = transactional(session)
    group = committing_group(session)
    if version < FIRST_ADDING_BY_ITSELF:
        add = transactions.AddOffsetsToTxnRequest(transactional_id, producer_id, epoch, group)
        assert session.connection.request(ApiKey.ADD_OFFSETS_TO_TXN, add, version=3).error_code == ErrorCode.NONE
    topic = transactions.TxnOffsetCommitRequestTopic(TOPIC, [transactions.TxnOffsetCommitRequestPartition(0, 1)])
    return transactions.TxnOffsetCommitRequest(transactional_id, group, producer_id, epoch, topics=[topic])


def end_txn_request(session: Session, version: int) -> transactions.EndTxnRequest:
    added = add_partitions_request(session, 3)
    assert session.connection.request(ApiKey.ADD_PARTITIONS_TO_TXN, added, version=3).results_by_topic_v3_and_below
    return transactions.EndTxnRequest(
        added.v3_and_below_transactional_id, added.v3_and_below_producer_id, added.v3_and_below_producer_epoch, committed=True
    )


def write_txn_markers_request(session: Session, version: int) -> transaction_admin.WriteTxnMarkersRequest:
    _, producer_id, epoch = transactional(session)
    topics = [transaction_admin.WritableTxnMarkerTopic(TOPIC, [1])]
    return transaction_admin.WriteTxnMarkersRequest([transaction_admin.WritableTxnMarker(producer_id, epoch, False, topics)])


REQUESTS: dict[ApiKey, Callable[[Session, int], Any]] = {
    ApiKey.PRODUCE: produce_request,
    ApiKey.FETCH: fetch_request,
    ApiKey.LIST_OFFSETS: list_offsets_request,
    ApiKey.METADATA: metadata_request,
    ApiKey.OFFSET_COMMIT: offset_commit_request,
    ApiKey.OFFSET_FETCH: offset_fetch_request,
    ApiKey.FIND_COORDINATOR: find_coordinator_request,
    ApiKey.JOIN_GROUP: join_group_request,
    ApiKey.SYNC_GROUP: sync_group_request,
    ApiKey.HEARTBEAT: lambda session, version: group_members.HeartbeatRequest(*joined(session)),
    ApiKey.LEAVE_GROUP: leave_group_request,
    ApiKey.DESCRIBE_GROUPS: lambda session, version: group_admin.DescribeGroupsRequest([joined(session)[0]], version >= 3),
    ApiKey.LIST_GROUPS: lambda session, version: group_admin.ListGroupsRequest(),
    ApiKey.API_VERSIONS: lambda session, version: ApiVersionsRequest("test", "1"),
    ApiKey.CREATE_TOPICS: create_topics_request,
    ApiKey.DELETE_TOPICS: delete_topics_request,
    ApiKey.DELETE_RECORDS: delete_records_request,
    ApiKey.INIT_PRODUCER_ID: lambda session, version: init_producer_id.InitProducerIdRequest(None, 1000),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: leader_epoch_request,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_request,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda session, version: transactions.AddOffsetsToTxnRequest(
        *transactional(session), committing_group(session)
    ),
    ApiKey.END_TXN: end_txn_request,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers_request,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit_request,
    ApiKey.DESCRIBE_CONFIGS: describe_configs_request,
    ApiKey.ALTER_CONFIGS: alter_configs_request,
    ApiKey.DESCRIBE_LOG_DIRS: lambda session, version: cluster.DescribeLogDirsRequest(None),
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs_request,
    ApiKey.CREATE_PARTITIONS: create_partitions_request,
    ApiKey.DELETE_GROUPS: lambda session, version: group_admin.DeleteGroupsRequest([committed_group(session)]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_request,
    ApiKey.OFFSET_DELETE: offset_delete_request,
    ApiKey.DESCRIBE_CLUSTER: lambda session, version: DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: lambda session, version: transaction_admin.DescribeProducersRequest(
        [transaction_admin.TopicRequest(TOPIC, [0])]
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda session, version: transaction_admin.DescribeTransactionsRequest([transactional(session)[0]]),
    ApiKey.LIST_TRANSACTIONS: lambda session, version: transaction_admin.ListTransactionsRequest(),
    ApiKey.LIST_CONFIG_RESOURCES: lambda session, version: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topics_request,
    ApiKey.ELECT_LEADERS: lambda session, version: partition_reassignments.ElectLeadersRequest(topic_partitions=[]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda session, version: partition_reassignments.AlterPartitionReassignmentsRequest(),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda session, version: partition_reassignments.ListPartitionReassignmentsRequest(),
    ApiKey.ALTER_MIRROR: lambda session, version: AlterMirrorRequest(),
}
OF_BROKERS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
"""What only a controller sends, in the newest versions, and fenced by its epoch; and what only a broker that stops asks it."""
CASES = [(key, version) for key in REQUESTS for version in range(CODEC[key].min, CODEC[key].max + 1)]


def error_codes(value: Any) -> Iterator[int]:
    """Every error code of a response, wherever it stands."""
    if is_dataclass(value):
        for field in fields(value):
            held = getattr(value, field.name)
            if field.name.endswith("error_code"):
                yield held
            else:
                yield from error_codes(held)
    elif isinstance(value, list):
        for item in value:
            yield from error_codes(item)


def test_every_api_in_service_is_tried_here(session: Session) -> None:
    assert set(session.connection.broker_versions) == set(REQUESTS) | OF_BROKERS


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{key.name.lower()}-{version}" for key, version in CASES])
def test_every_version_is_answered(key: ApiKey, version: int, session: Session) -> None:
    response = session.connection.request(key, REQUESTS[key](session, version), version=version)
    assert set(error_codes(response)) <= {ErrorCode.NONE}
    if key is ApiKey.FETCH:
        assert response.responses[0].partitions[0].records
    if key is ApiKey.LIST_OFFSETS:
        for time in (-1, -2, *([-3] if version >= 7 else []), 1_600_000_000_000):
            found = session.connection.request(key, list_offsets_request(session, version, time), version=version)
            assert [(each.error_code, each.offset >= 0) for each in found.topics[0].partitions] == [(0, True)]
