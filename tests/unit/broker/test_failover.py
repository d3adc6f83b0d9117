"""Three brokers, the controller among them, and followers that fetch: what is acknowledged with acks all stays, whichever ends."""

from typing import Any

import pytest

from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.cluster import znodes
from moldau.cluster.znodes import PartitionState, decode_state
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Data, GetData
from moldau.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.records.batch import RecordBatchBuilder, iterate_log
from support.cluster_world import ClusterWorld

IDS = (1, 2, 3)
ZERO = TopicPartition("t", 0)
TOPIC, SET = 2, 0


class Story:
    """A cluster with one partition, which broker `leader` leads at first; broker 1 is controller."""

    def __init__(self, leader: int, *others: int, minimum: int = 1, **settings: object) -> None:
        self.cluster = ClusterWorld(*IDS, replica_lag_time_max_ms=1000, **settings)
        assert self.cluster.controller_id == 1
        replicas = [CreatableReplicaAssignment(0, [leader, *others])]
        configs = [CreatableTopicConfig("min.insync.replicas", str(minimum))]
        request = CreateTopicsRequest([CreatableTopic("t", -1, -1, replicas, configs)])
        (created,) = self.cluster.ask(1, request, 7).topics
        assert created.error_code == 0
        self.topic_id: bytes = created.topic_id
        self.cluster.settle()

    def produce_later(self, broker_id: int, value: bytes, acks: int = -1) -> Any:
        """Send a record; where its answer comes."""
        builder = RecordBatchBuilder()
        builder.append(self.cluster.clock.time_ms(), None, value)
        data = [TopicProduceData(topic_id=self.topic_id, partition_data=[PartitionProduceData(0, builder.build())])]
        return self.cluster.send(broker_id, ProduceRequest(None, acks, 10_000, data), 13)

    def produce(self, broker_id: int, value: bytes, acks: int = -1) -> ErrorCode:
        call = self.produce_later(broker_id, value, acks)
        self.cluster.until(lambda: call.response is not None)
        return code_of(call)

    def led_by_another_than(self, *ended: int) -> int:
        """The next leader, once it leads."""
        cluster = self.cluster

        def leaders() -> list[int]:
            hosted = {each: cluster.broker(each).replicas.hosted.get(ZERO) for each in cluster.processes if each not in ended}
            return [each for each, found in hosted.items() if found is not None and found.machine.role is ReplicaRole.LEADER]

        cluster.until(lambda: bool(leaders()))
        (leader,) = leaders()
        return leader

    def power_cut(self, broker_id: int) -> None:
        """What the broker had not synced is lost."""
        self.cluster.kill(broker_id)
        self.cluster.disks[broker_id].crash()

    def start(self, *broker_ids: int) -> None:
        for each in broker_ids:
            self.cluster.start(each)
        self.cluster.until(lambda: all(process.is_serving for process in self.cluster.processes.values()) and self.cluster.agrees())

    def until_in_sync(self, *broker_ids: int) -> None:
        self.cluster.until(lambda: sorted(self.state().isr) == sorted(broker_ids))

    def state(self) -> PartitionState:
        """As the tree has it."""
        found: list[object] = []
        self.cluster.tree.session().submit(GetData(znodes.partition_state("t", 0)), found.append)
        (data,) = found
        assert isinstance(data, Data)
        return decode_state("", data.data)

    def values(self, broker_id: int) -> list[bytes | None]:
        """All that a broker's log has."""
        log = self.cluster.broker(broker_id).replicas.hosted[ZERO].log
        if not log.log_end_offset:
            return []
        read = log.read(0, 1 << 20, log.log_end_offset, at_least_one=True)
        assert read.records is not None
        data = read.records.file.pread(read.records.length, read.records.position)
        read.records.release()
        return [record.value for record in iterate_log(memoryview(data), max_decompressed_bytes=1 << 24)]

    def ends_with(self, *values: bytes) -> None:
        """In the end all replicas are in sync, and have these records."""
        self.until_in_sync(*IDS)
        self.cluster.until(lambda: [self.values(each) for each in IDS] == [list(values)] * len(IDS))


def code_of(call: Any) -> ErrorCode:
    return ErrorCode(call.response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_is_killed_and_what_only_it_had_is_cut_off_when_it_comes_back(leader: int) -> None:
    """Also where it is controller (Z11)."""
    story = Story(leader, *(each for each in IDS if each != leader))
    followers = [each for each in IDS if each != leader]
    assert story.produce(leader, b"a") is ErrorCode.NONE
    for each in followers:
        story.cluster.processes[each].hang()
    assert story.produce(leader, b"sent", acks=1) is ErrorCode.NONE, "the answer to fetches that wait, read when they run again"
    assert story.produce(leader, b"lost", acks=1) is ErrorCode.NONE
    story.cluster.kill(leader)
    for each in followers:
        story.cluster.processes[each].resume()
    successor = story.led_by_another_than()
    assert story.produce(successor, b"b") is ErrorCode.NONE
    assert leader not in story.state().isr
    story.start(leader)
    story.ends_with(b"a", b"sent", b"b")


@pytest.mark.parametrize("bounced", [2, 3])
def test_a_power_cut_and_a_restart_within_the_sessions_time_cost_a_replica_its_place(bounced: int) -> None:
    """Z1, R22: leader or follower, it has lost what was acknowledged, and the controller never missed it."""
    story = Story(2, 3, 1)
    assert story.produce(2, b"a") is ErrorCode.NONE
    epoch = story.state().leader_epoch
    process = story.cluster.kill(bounced, expires=False)
    story.cluster.disks[bounced].crash()
    story.cluster.clock.call_later(0.01, process.session.expire)
    story.cluster.start(bounced)
    story.cluster.until(lambda: story.state().leader_epoch > epoch)
    assert bounced not in story.state().isr
    assert story.state().leader == (3 if bounced == 2 else 2)
    story.ends_with(b"a")


def test_all_but_one_lose_their_tails_one_after_the_other() -> None:
    """D1 for a minority, each time another."""
    story = Story(1, 2, 3)
    values = []
    for each in IDS:
        leader = story.led_by_another_than()
        values.append(b"%d" % each)
        assert story.produce(leader, values[-1]) is ErrorCode.NONE
        story.power_cut(each)
        assert story.led_by_another_than() != each
        story.start(each)
        story.ends_with(*values)


def test_k5_the_last_replica_standing_loses_nothing_that_was_acknowledged() -> None:
    """Below the minimum nothing is acknowledged, so that who left the in-sync set has all that was."""
    story = Story(1, 2, 3, minimum=2)
    assert story.produce(1, b"a") is ErrorCode.NONE
    story.cluster.stop(2)
    story.cluster.stop(3)
    assert (story.state().isr, story.state().elr) == ((1,), (3,))
    assert story.produce(1, b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
    story.power_cut(1)
    story.start(3)
    assert story.state().leader == 3
    story.start(1, 2)
    story.ends_with(b"a")


def test_unclean_election_enabled_while_no_replica_in_sync_lives() -> None:
    """Z23, R13: the leader of before truncates what the unclean one does not have."""
    story = Story(1, 2, 3)
    for each in (2, 3):
        story.cluster.kill(each)
    story.until_in_sync(1)
    assert story.produce(1, b"only here") is ErrorCode.NONE
    story.cluster.kill(1)
    story.start(2, 3)
    assert story.state().leader == -1
    config = IncrementalAlterableConfig("unclean.leader.election.enable", SET, "true")
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, "t", [config])], False)
    assert story.cluster.ask(story.cluster.controller_id, request, 1).responses[0].error_code == 0
    assert story.produce(story.led_by_another_than(), b"b") is ErrorCode.NONE
    story.start(1)
    story.ends_with(b"b")


def test_k6_a_leader_whose_session_ended_while_it_hung_acknowledges_nothing_afterwards() -> None:
    """It runs again before it knows: its followers have another leader, and the tree refuses its in-sync set."""
    story = Story(2, 1, 3)
    assert story.produce(2, b"a") is ErrorCode.NONE
    zombie = story.cluster.processes[2]
    zombie.hang()
    waiting = story.produce_later(2, b"never")
    zombie.session.expire()
    successor = story.led_by_another_than(2)
    assert story.produce(successor, b"b") is ErrorCode.NONE
    zombie.resume()
    late = story.produce_later(2, b"neither")
    story.cluster.advance(2.0)
    assert waiting.response is None or code_of(waiting) is not ErrorCode.NONE
    assert late.response is None or code_of(late) is not ErrorCode.NONE
    zombie.session.resume()
    story.cluster.until(lambda: waiting.response is not None and late.response is not None)
    assert ErrorCode.NONE not in (code_of(waiting), code_of(late))
    story.ends_with(b"a", b"b")


def test_statements_that_a_broker_receives_late_change_nothing() -> None:
    """Broker 3 hangs over two elections: what waits for it is what holds now, and it follows the last leader at once."""
    story = Story(2, 1, 3)
    story.cluster.processes[3].hang()
    story.cluster.kill(2)
    assert story.led_by_another_than(3) == 1
    story.until_in_sync(1)
    assert story.produce(1, b"a") is ErrorCode.NONE
    story.cluster.start(2)
    story.until_in_sync(1, 2)
    story.cluster.processes[3].resume()
    story.cluster.until(story.cluster.agrees)
    story.ends_with(b"a")
    assert story.cluster.broker(3).replicas.hosted[ZERO].machine.leader_id == story.state().leader
