"""One long dialogue about offsets and groups, held with Apache Kafka 4.3 and with Moldau: both give the same answers, code by code."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.group_members import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.kafka import KafkaProcess
from support.memberships import subscription
from support.server import ServerProcess
from support.wire import Wire, batch

pytestmark = pytest.mark.system

LIMIT_S = 60.0
PAUSE_S = 0.05
BUSY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
Place = tuple[str, int]
Told = dict[str, Any]


def name(code: int) -> str:
    return ErrorCode(code).name


class Dialogue:
    """Asks, and writes the answers down in short under a name of each question."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.wire = Wire((host, int(port)))
        self.told: Told = {}
        self.ids: dict[str, bytes] = {}

    def hold(self) -> Told:
        """All of it."""
        self.prepare()
        for part in (self.simple, self.refused, self.strange_ids, self.members, self.tools, self.transactions, self.topics_that_go):
            part()
        self.wire.close()
        return self.told

    # Requests

    def commit(
        self, label: str, group: str, offsets: Mapping[Place, int], *, version: int = 9, metadata: str | None = "", **said: Any
    ) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, 4, metadata))
        wanted = [OffsetCommitRequestTopic(topic, self.id_of(topic), partitions) for topic, partitions in topics.items()]
        answer = self.wire.ask(OffsetCommitRequest(group, topics=wanted, **said), version)
        self.told[label] = self.codes(answer.topics)

    def fetch(self, label: str, group: str, wanted: Mapping[str, list[int]] | None, *, version: int = 9, stable: bool = False) -> Told:
        if version < 8:
            topics = None if wanted is None else [OffsetFetchRequestTopic(*each) for each in wanted.items()]
            answer = self.wire.ask(OffsetFetchRequest(group, topics, require_stable=stable), version)
        else:
            asked = None if wanted is None else [OffsetFetchRequestTopics(topic, self.id_of(topic), each) for topic, each in wanted.items()]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=asked)], require_stable=stable)
            (answer,) = self.wire.ask(request, version).groups
        told: Told = {
            f"{self.name_of(topic)}-{each.partition_index}": (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
                name(each.error_code),
            )
            for topic in answer.topics
            for each in topic.partitions
        }
        told["code"] = name(answer.error_code)
        self.told[label] = dict(sorted(told.items()))
        return told

    def delete_offsets(self, label: str, group: str, *places: Place) -> None:
        topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)]) for topic, partition in places]
        answer = self.wire.ask(OffsetDeleteRequest(group, topics), 0)
        self.told[label] = name(answer.error_code), self.codes(answer.topics)

    def codes(self, topics: list[Any]) -> Told:
        """The codes of partitions, in whatever order they come."""
        found = {f"{self.name_of(topic)}-{each.partition_index}": name(each.error_code) for topic in topics for each in topic.partitions}
        return dict(sorted(found.items()))

    def id_of(self, topic: str) -> bytes:
        return self.ids.get(topic, b"?" * 16)

    def name_of(self, topic: Any) -> str:
        if topic.name:
            return str(topic.name)
        return next((each for each, topic_id in self.ids.items() if topic_id == topic.topic_id), "unknown")

    def until(self, attempt: Callable[[], Any]) -> None:
        """Try until it is true."""
        deadline = time.monotonic() + LIMIT_S
        while not attempt():
            assert time.monotonic() < deadline
            time.sleep(PAUSE_S)

    def create(self, topic: str, partitions: int) -> None:
        self.wire.ask(CreateTopicsRequest([CreatableTopic(topic, partitions, 1)]), 7)
        self.until(lambda: self.described(topic).error_code == 0 and len(self.described(topic).partitions) == partitions)
        self.until(lambda: all(each.leader_id >= 0 for each in self.described(topic).partitions))
        self.ids[topic] = self.described(topic).topic_id

    def described(self, topic: str) -> Any:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return self.wire.ask(request, 12).topics[0]

    # The parts

    def prepare(self) -> None:
        self.create("t", 3)
        self.create("u", 1)
        for kind in (0, 1):
            request = FindCoordinatorRequest("any", kind)
            self.until(lambda request=request: self.wire.ask(request, 2).error_code not in BUSY)  # type: ignore[misc]
        self.until(lambda: self.fetch("", "any", None)["code"] == "NONE")
        answer = self.wire.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["a"]), 6)
        self.told["a coordinator of another kind"] = [(each.key, name(each.error_code), each.node_id) for each in answer.coordinators]

    def simple(self) -> None:
        for version in range(2, 11):
            self.commit(f"commit {version}", f"group {version}", {("t", 0): version, ("u", 0): 1}, version=version, metadata=None)
            for other in range(1, 11):
                self.fetch(f"fetch {version} by {other}", f"group {version}", {"t": [0, 1, -1, 99], "no": [0]}, version=other)
            self.fetch(f"all {version}", f"group {version}", None, version=version)
        self.fetch("nothing asked", "group 9", {})
        for version in (1, 5, 9, 10):
            self.fetch(f"of no group {version}", "nobody", {"t": [0]}, version=version)
        self.fetch("all of no group", "nobody", None)
        self.commit("long text", "g", {("t", 0): 1}, metadata="x" * 4097)
        self.fetch("after long text", "g", {"t": [0]})
        self.commit("text of allowed length", "g", {("t", 0): 1}, metadata="😀" * 2048)
        self.commit("text one too long", "g", {("t", 0): 1}, metadata="😀" * 2048 + "x")
        self.commit("a negative offset", "g", {("t", 1): -5})
        self.fetch("after a negative offset", "g", {"t": [0, 1]})

    def refused(self) -> None:
        for version in (2, 9, 10):
            self.commit(f"no such place {version}", "g", {("t", 7): 1, ("t", -1): 1, ("no", 0): 1, ("t", 2): 3}, version=version)
        for version in (8, 9, 10):
            said: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 1}
            self.commit(f"member of no group {version}", f"none {version}", {("t", 0): 1}, version=version, **said)
            self.commit(f"member of a group without members {version}", "g", {("t", 0): 1}, version=version, **said)
        self.commit("a name without a generation", "g", {("t", 0): 6}, member_id="m")
        self.commit("an instance without a generation", "g", {("t", 0): 7}, group_instance_id="i")

    def strange_ids(self) -> None:
        self.commit("the empty group", "", {("t", 0): 4})
        self.fetch("of the empty group", "", {"t": [0]})
        self.delete_offsets("offsets of the empty group", "", ("t", 0))
        for group in ("", "nobody"):
            for version in (5, 6):
                (described,) = self.wire.ask(DescribeGroupsRequest([group]), version).groups
                told = name(described.error_code), described.group_state, described.protocol_type, described.error_message
                self.told[f"describe '{group}' {version}"] = told
        self.delete_groups("delete the empty group", "")

    def delete_groups(self, label: str, *groups: str) -> None:
        results = self.wire.ask(DeleteGroupsRequest(list(groups)), 2).results
        self.told[label] = sorted((each.group_id, name(each.error_code)) for each in results)

    def join(self, group: str, kind: str, instance: str | None = None) -> tuple[str, int]:
        protocols = [JoinGroupRequestProtocol("range", subscription("t", rest=b"\xff\xff\xff\xff"))]
        request = JoinGroupRequest(group, 30_000, 60_000, "", instance, kind, protocols)
        if instance is None:
            request.member_id = self.wire.ask(request, 5).member_id
        joined = self.wire.ask(request, 5)
        assignments = [SyncGroupRequestAssignment(joined.member_id, b"")]
        sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, instance, kind, "range", assignments)
        assert self.wire.ask(sync, 5).error_code == 0
        return joined.member_id, joined.generation_id

    def members(self) -> None:
        member, generation = self.join("busy", "consumer", "i-1")
        said: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation, "group_instance_id": "i-1"}
        place = {("t", 0): 5}
        self.commit("by a member", "busy", {**place, ("u", 0): 1}, **said)
        self.commit("by nobody", "busy", place)
        for what, value in (
            ("generation_id_or_member_epoch", 9),
            ("member_id", "x"),
            ("group_instance_id", "x"),
            ("group_instance_id", None),
        ):
            self.commit(f"with {what} {value}", "busy", place, **{**said, what: value})
        self.fetch("of a busy group", "busy", None)
        self.delete_offsets("offsets of a busy group", "busy", ("t", 0), ("u", 0), ("no", 0), ("t", 99))
        self.delete_offsets("no place of any group", "nobody", ("no", 0))
        self.delete_offsets("offsets of no group", "nobody", ("t", 0))
        self.fetch("of a busy group afterwards", "busy", None)
        self.join("connect", "connect")
        self.delete_offsets("offsets of a group of others", "connect", ("t", 0))
        for version in (0, 3, 5, 6):
            (group,) = self.wire.ask(DescribeGroupsRequest(["busy"], include_authorized_operations=version >= 3), version).groups
            operations = sorted(number for number in range(32) if group.authorized_operations >> number & 1)
            told = [(each.group_instance_id, each.member_metadata, each.member_assignment) for each in group.members]
            self.told[f"describe {version}"] = group.group_state, group.protocol_type, group.protocol_data, told, operations
        (simple,) = self.wire.ask(DescribeGroupsRequest(["group 9"]), 5).groups
        self.told["describe a simple group"] = simple.group_state, simple.protocol_type, simple.protocol_data, simple.members

    def tools(self) -> None:
        for version in range(6):
            self.listed(f"list {version}", ListGroupsRequest(), version)
        for states in (["Stable"], ["stable", "EMPTY"], ["Dead"], ["nonsense"]):
            self.listed(f"list {states}", ListGroupsRequest(states), 4)
        for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"]):
            self.listed(f"list {types}", ListGroupsRequest([], types), 5)
        self.delete_groups("delete", "group 2", "busy", "nobody")
        self.fetch("of a deleted group", "group 2", {"t": [0]})

    def listed(self, label: str, request: ListGroupsRequest, version: int) -> None:
        answer = self.wire.ask(request, version)
        groups = sorted((each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups)
        self.told[label] = name(answer.error_code), groups

    def transactions(self) -> None:
        begun = self.begin()
        self.txn_commit("not added 3", begun, "txn", {("t", 0): 8}, version=3)
        self.txn_commit("not added 4", begun, "txn", {("t", 0): 8}, version=4)
        self.commit("before", "txn", {("t", 0): 1, ("t", 1): 1})
        transactional_id, producer_id, epoch = begun
        for group in ("txn", "new", ""):
            self.until(lambda group=group: self.wire.ask(AddOffsetsToTxnRequest(*begun, group), 3).error_code not in BUSY)  # type: ignore[misc]
        for version in (0, 3):
            offsets = {("t", 0): 8, ("t", 99): 1, ("no", 0): 1}
            self.txn_commit(f"in a transaction {version}", begun, "txn", offsets, version=version)
        self.txn_commit("of a new group", begun, "new", {("t", 0): 9})
        self.txn_commit("of the empty group", begun, "", {("t", 0): 9})
        self.txn_commit("by a member of no group", begun, "none", {("t", 0): 9}, member_id="m", generation_id=1)
        self.txn_commit("by a member of a group without members", begun, "txn", {("t", 0): 9}, member_id="m", generation_id=1)
        self.txn_commit("by a stranger", begun, "busy", {("t", 0): 9}, member_id="m", generation_id=1)
        self.txn_commit("long text", begun, "txn", {("t", 0): 9}, metadata="x" * 5000)
        self.txn_commit("an older epoch", (transactional_id, producer_id, -1), "txn", {("t", 0): 9})
        self.txn_commit("a newer epoch", (transactional_id, producer_id, epoch + 1), "txn", {("t", 0): 9})
        self.txn_commit("an unknown id", ("unknown", 4711, 0), "other", {("t", 0): 9})
        self.commit("meanwhile", "txn", {("t", 1): 5})
        for stable in (False, True):
            self.fetch(f"open, stable {stable}", "txn", {"t": [0, 1, 2]}, stable=stable)
            self.fetch(f"all while open, stable {stable}", "txn", None, stable=stable)
            self.fetch(f"new while open, stable {stable}", "new", {"t": [0]}, stable=stable)
        self.listed("list while open", ListGroupsRequest(), 5)
        self.told["end"] = name(self.wire.ask(EndTxnRequest(*begun, committed=True), 3).error_code)
        self.until(lambda: "UNSTABLE" not in str(self.fetch("", "txn", {"t": [0]}, stable=True)))
        self.fetch("committed", "txn", None)
        self.until(lambda: "UNSTABLE" not in str(self.fetch("", "new", {"t": [0]}, stable=True)))
        self.fetch("new committed", "new", None)
        implicit = self.begin()
        self.txn_commit("added by itself", implicit, "txn", {("t", 0): 77}, version=5)
        self.delete_offsets("deleted while open", "txn", ("t", 0))
        self.told["abort"] = name(self.wire.ask(EndTxnRequest(*implicit, committed=True), 5).error_code)
        self.until(lambda: "UNSTABLE" not in str(self.fetch("", "txn", {"t": [0]}, stable=True)))
        self.fetch("deleted while open, then committed", "txn", None)

    def begin(self) -> tuple[str, int, int]:
        """A producer."""
        request = InitProducerIdRequest("tx", 60_000)
        self.until(lambda: self.wire.ask(request, 4).error_code not in BUSY)
        answer = self.wire.ask(request, 4)
        return "tx", answer.producer_id, answer.producer_epoch

    def txn_commit(
        self,
        label: str,
        producer: tuple[str, int, int],
        group: str,
        offsets: Mapping[Place, int],
        *,
        version: int = 3,
        metadata: str = "",
        **said: Any,
    ) -> None:
        transactional_id, producer_id, epoch = producer
        topics = [
            TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)])
            for (topic, partition), offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(transactional_id, group, producer_id, epoch, topics=topics, **said)
        answer = self.wire.ask(request, version)
        self.told[f"txn {label}"] = self.codes(answer.topics)

    def topics_that_go(self) -> None:
        internal = ProduceRequest(
            None, 1, 1000, [TopicProduceData("__consumer_offsets", partition_data=[PartitionProduceData(0, batch(b"v"))])]
        )
        self.told["produce to an internal topic"] = name(self.wire.ask(internal, 9).responses[0].partition_responses[0].error_code)
        self.commit("of a topic that goes", "g", {("u", 0): 3})
        self.wire.ask(DeleteTopicsRequest(topic_names=["u"], timeout_ms=10_000), 5)
        self.until(lambda: "u-0" not in self.fetch("", "g", None))
        self.fetch("of a topic that is gone", "g", {"u": [0]})
        self.create("u", 1)
        self.fetch("of a topic made anew", "g", {"u": [0]})


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    with KafkaProcess("4.3.0", directory) as process:
        yield process.bootstrap


@contextmanager
def moldau(directory: Path) -> Iterator[str]:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with ServerProcess(directory, settings=settings) as server:
        yield server.bootstrap


def test_kafka_and_moldau_give_the_same_answers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, kafka(tmp_path / "kafka") as address:
        held = pool.submit(Dialogue(address).hold)  # both wait most of the time
        with moldau(tmp_path / "moldau") as ours_address:
            ours = Dialogue(ours_address).hold()
        theirs = held.result()
    assert {label: (told, theirs[label]) for label, told in ours.items() if told != theirs[label]} == {}
    assert set(ours) == set(theirs)
