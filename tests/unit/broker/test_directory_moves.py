"""AlterReplicaLogDirs moves logs between the directories of a broker, of leaders and of followers, while they are written."""

from typing import Any

import pytest

from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition_events import IsrSettled, ProposeIsr
from moldau.broker.security import Channel, Operation
from moldau.cluster.internal_topics import OFFSETS
from moldau.model.errors import ErrorCode, StorageError
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_clients import SETTINGS, ClusterClient, coordinator_of, heartbeat, join_group, partition_of
from support.cluster_world import ClientCall, ClusterWorld
from support.group_requests import commit, fetch
from support.logs import values_of

ZERO = TopicPartition("t", 0)
SLOW = 100_000
"""Bytes per second."""
SLOW_MOVE: dict[str, object] = {"replica_alter_log_dirs_io_max_bytes_per_second": SLOW, "log_segment_delete_delay_ms": 1000}
MANY = [bytes(20_000)] * 40
"""Eight seconds."""


class World(ClusterWorld):
    """Brokers with two directories each, and a topic."""

    directories = ("/a", "/b")

    def __init__(self, *broker_ids: int, **settings: object) -> None:
        super().__init__(*broker_ids, **settings)
        self.topic_id = self.create_topic("t", 1, len(broker_ids))
        self.settle()
        self.written: list[bytes] = []

    @property
    def leader(self) -> int:
        return self.partition("t").leader

    def hosted(self, broker_id: int) -> HostedPartition:
        return self.broker(broker_id).replicas.hosted[ZERO]

    def directory(self, broker_id: int) -> str:
        return self.hosted(broker_id).log.directory.rpartition("/")[0]

    def send_batch(self, value: bytes) -> ClientCall:
        """To the leader, with acks=all."""
        builder = RecordBatchBuilder()
        builder.append(self.clock.time_ms(), None, value)
        data = [TopicProduceData(topic_id=self.topic_id, partition_data=[PartitionProduceData(0, builder.build())])]
        self.written.append(value)
        return self.send(self.leader, ProduceRequest(None, -1, 30_000, data), 13)

    def produce(self, *values: bytes) -> None:
        """One batch each, acknowledged."""
        for value in values:
            assert self.code_of(self.send_batch(value)) == 0

    def code_of(self, call: ClientCall) -> int:
        """Of a batch, once it is answered."""
        self.until(lambda: call.response is not None)
        code: int = call.response.responses[0].partition_responses[0].error_code
        return code

    def finish(self, broker_id: int, path: str) -> None:
        """Have the move come to its end."""
        self.until(lambda: ZERO in self.broker(broker_id).replicas.hosted and self.directory(broker_id) == path)

    def move(self, broker_id: int, path: str, topic: str = "t", index: int = 0) -> int:
        """The error code."""
        wanted = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [index])])]
        code: int = self.ask(broker_id, AlterReplicaLogDirsRequest(wanted), 2).results[0].partitions[0].error_code
        return code

    def described(self, broker_id: int) -> dict[tuple[str, bool], Any]:
        """What DescribeLogDirs has of the topic, by directory, and whether it is a copy."""
        return {
            (result.log_dir, each.is_future_key): each
            for result in self.ask(broker_id, DescribeLogDirsRequest(None), 4).results
            for topic in result.topics
            if topic.name == "t"
            for each in topic.partitions
        }

    def other(self, broker_id: int) -> str:
        return "/b" if self.directory(broker_id) == "/a" else "/a"


def folders(world: World, broker_id: int) -> list[str]:
    """Folders of the topic, marked ones too."""
    disk = world.disks[broker_id]
    return [f"{path}/{name}" for path in world.directories for name in disk.list(path) if name.startswith("t-0")]


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_log_moves_while_it_is_written_and_its_broker_continues_in_its_role(role: str) -> None:
    world = World(1, 2, 3, log_segment_delete_delay_ms=1000)
    world.produce(*[b"%d" % number for number in range(20)])
    broker_id = world.leader if role == "leader" else next(each for each in world.processes if each != world.leader)
    epoch, to = world.hosted(broker_id).machine.leader_epoch, world.other(broker_id)
    assert world.move(broker_id, to) == 0
    world.produce(b"meanwhile")
    world.finish(broker_id, to)
    world.produce(b"afterwards")
    world.advance(0.6)  # then followers know what is committed
    hosted = world.hosted(broker_id)
    assert values_of(hosted.log) == world.written
    assert (hosted.machine.leader_epoch, hosted.is_led) == (epoch, role == "leader")
    assert list(world.described(broker_id)) == [(to, False)]
    world.until(lambda: sorted(world.hosted(world.leader).machine.isr) == [1, 2, 3])
    world.skip(15)
    assert folders(world, broker_id) == [f"{to}/t-0"], "the earlier one is removed after file.delete.delay.ms"


def test_what_was_copied_in_part_is_dropped_by_a_restart() -> None:
    world = World(1, **SLOW_MOVE)
    world.produce(*MANY)
    begun = world.directory(1)
    assert world.move(1, world.other(1)) == 0
    world.advance(1.0)
    assert len(folders(world, 1)) == 2
    world.kill(1)
    world.start(1)
    world.until(lambda: world.processes[1].is_serving)
    world.skip(5)
    assert folders(world, 1) == [f"{begun}/t-0"]
    assert values_of(world.hosted(1).log) == world.written


def test_a_copy_is_shown_with_its_lag_while_it_grows_and_no_faster_than_allowed() -> None:
    world = World(1, **SLOW_MOVE)
    world.produce(*MANY)
    to = world.other(1)
    assert world.move(1, to) == 0
    found = world.described(1)
    assert found[to, True].offset_lag > 0
    assert found[to, True].partition_size < len(MANY) * len(MANY[0])
    assert not found[world.directory(1), False].is_future_key
    world.skip(3)
    assert world.directory(1) != to
    assert 0 < world.described(1)[to, True].offset_lag < found[to, True].offset_lag
    world.skip(9)
    assert world.directory(1) == to
    assert values_of(world.hosted(1).log) == world.written


def test_a_move_back_to_where_the_log_is_cancels_and_one_to_the_same_directory_does_nothing() -> None:
    world = World(1, **SLOW_MOVE)
    world.produce(*MANY)
    here, there = world.directory(1), world.other(1)
    assert world.move(1, here) == 0
    assert list(world.described(1)) == [(here, False)]
    assert world.move(1, there) == 0
    assert world.move(1, there) == 0
    assert len(world.described(1)) == 2
    assert world.move(1, here) == 0
    assert list(world.described(1)) == [(here, False)]
    world.skip(5)
    assert folders(world, 1) == [f"{here}/t-0"]


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing() -> None:
    world = World(1, **SLOW_MOVE)
    world.produce(*MANY)
    assert world.move(1, world.other(1)) == 0
    world.ask(1, DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
    world.skip(15)
    assert folders(world, 1) == []
    assert world.broker(1).logs.futures.moving() == []


def test_a_directory_that_fails_ends_the_copy_and_the_log_stays_in_service() -> None:
    world = World(1, **SLOW_MOVE)
    world.produce(*MANY)
    here, there = world.directory(1), world.other(1)
    assert world.move(1, there) == 0
    world.disks[1].fail = lambda _operation, path: path.startswith(there)
    world.skip(3)
    world.produce(b"still there")
    assert world.directory(1) == here
    assert values_of(world.hosted(1).log) == world.written
    assert world.move(1, there) == ErrorCode.KAFKA_STORAGE_ERROR


def test_errors_name_what_is_wrong_and_a_replica_that_comes_is_made_where_it_was_wanted() -> None:
    world = World(1)
    assert world.move(1, "/c") == ErrorCode.LOG_DIR_NOT_FOUND
    assert world.move(1, "/a", "not a topic") == ErrorCode.INVALID_TOPIC_EXCEPTION
    for name, path in (("u", "/a"), ("v", "/a"), ("w", "/b"), ("x", "/b"), ("y", "/b")):
        assert world.move(1, path, name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.create_topic(name, 1, 1)
        world.settle()
        assert world.broker(1).replicas.hosted[TopicPartition(name, 0)].log.directory == f"{path}/{name}-0"


def test_a_broker_without_a_replica_of_the_partition_says_so() -> None:
    world = World(1, 2)
    world.create_topic("u", 1, 1)
    world.settle()
    (other,) = {1, 2} - {world.partition("u").leader}
    assert world.move(other, "/a", "u") == ErrorCode.REPLICA_NOT_AVAILABLE


def test_who_may_not_alter_the_cluster_moves_nothing() -> None:
    class Refuses:
        def allows(self, channel: Channel, operation: Operation, topic: str | None = None) -> bool:
            return operation is not Operation.ALTER

    world = World(1, **SLOW_MOVE)
    world.produce(*MANY)
    world.broker(1).pipeline.authorizer = Refuses()
    assert world.move(1, world.other(1)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.broker(1).logs.futures.moving() == []


def test_an_append_that_waits_for_followers_is_acknowledged_from_the_new_place() -> None:
    world = World(1, 2, 3)
    world.produce(b"a")
    leader = world.leader
    followers = {1, 2, 3} - {leader}
    for each in sorted(followers):
        world.cut(each, leader)
    world.settle()
    call = world.send_batch(b"b")
    to = world.other(leader)
    assert world.move(leader, to) == 0
    world.finish(leader, to)
    assert call.response is None
    for each in sorted(followers):
        world.heal(each)
    assert world.code_of(call) == 0
    assert world.leader == leader
    assert values_of(world.hosted(leader).log) == [b"a", b"b"]


def test_a_fetch_that_waits_gets_what_is_appended_in_the_new_place() -> None:
    world = World(1)
    world.produce(b"a")
    wanted = [FetchTopic(topic_id=world.topic_id, partitions=[FetchPartition(0, -1, 1, -1, -1, 1 << 20)])]
    call = world.send(1, FetchRequest(max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, topics=wanted), 13)
    world.settle()
    to = world.other(1)
    assert world.move(1, to) == 0
    world.finish(1, to)
    world.settle()
    assert not call.response
    world.produce(b"b")
    world.settle()
    (found,) = call.response.responses[0].partitions
    assert (found.error_code, found.high_watermark) == (0, 2)
    assert found.records


def test_a_log_is_not_taken_over_while_a_change_of_the_in_sync_set_is_proposed() -> None:
    """The answer would find another opening of the log, and another replica might lead without what is committed until it is known."""
    world = World(1, 2, 3)
    world.produce(b"a")
    leader = world.leader
    hosted, to = world.hosted(leader), world.other(leader)
    machine, replicas = hosted.machine, world.broker(leader).replicas
    replicas.step(hosted, ProposeIsr((leader,)))
    assert world.move(leader, to) == 0
    world.advance(1.0)
    assert replicas.hosted[ZERO] is hosted
    assert len(world.described(leader)) == 2
    replicas.step(hosted, IsrSettled(machine.leader_epoch, (1, 2, 3), machine.state_version))
    world.finish(leader, to)
    assert replicas.hosted[ZERO].machine is machine


def test_groups_have_their_coordinator_again_with_members_and_offsets_where_its_partition_moves() -> None:
    world = World(1, 2, 3, **SETTINGS)
    member = join_group(world, "g")
    at = coordinator_of(world, "g")
    client = ClusterClient(world, at)
    done = commit(client, "g", {("t", 0): 7}, version=8, generation=member.generation, member=member.member_id)
    assert done == {("t", 0): "NONE"}
    partition = TopicPartition(OFFSETS.name, partition_of(world, "g"))
    replicas = world.broker(at).replicas
    before = replicas.hosted[partition].log.directory
    to = "/b" if before.startswith("/a") else "/a"
    assert world.move(at, to, *partition) == 0
    world.until(lambda: replicas.hosted[partition].log.directory.startswith(to))
    assert coordinator_of(world, "g") == at
    assert heartbeat(world, at, "g", member) == "NONE"
    assert fetch(client, "g", [("t", 0)], version=7) == {("t", 0): 7}


def test_a_log_that_a_full_disk_keeps_from_leaving_is_served_where_it_is_after_that() -> None:
    world = World(1)
    world.produce(b"a")
    here = world.directory(1)

    def full(operation: str, path: str) -> bool:
        if operation == "rename" and path.endswith("/t-0"):
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    world.disks[1].fail = full
    assert world.move(1, world.other(1)) == 0
    world.until(lambda: ZERO not in world.broker(1).replicas.hosted)
    world.disks[1].fail = None
    world.skip(11)
    assert world.directory(1) == here
    world.produce(b"b")
    assert values_of(world.hosted(1).log) == [b"a", b"b"]
    assert folders(world, 1) == [f"{here}/t-0"]
