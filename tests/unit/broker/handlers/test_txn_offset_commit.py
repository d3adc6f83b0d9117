"""TxnOffsetCommit: offsets wait for the end of their transaction; who may commit them, and what an open transaction hides (KIP-447)."""

from pathlib import Path
from typing import Any

import pytest

from moldau.broker.coordinators.partition_coordinator import Phase
from moldau.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.broker_world import BrokerWorld, Client
from support.group_requests import commit, commit_in_transaction, delete_between_steps, fetch, group_world, join, name

PLACE = ("t", 0)
OK = {PLACE: "NONE"}


class Producer:
    """A transactional producer of a version before TV2, which adds offsets to its transaction itself."""

    def __init__(self, client: Client, transactional_id: str = "tx") -> None:
        self.client = client
        self.transactional_id = transactional_id
        answer = client.ask(InitProducerIdRequest(transactional_id, 60_000), 4)
        client.world.clock.settle()
        assert answer.error_code == 0, name(answer.error_code)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, group: str) -> str:
        request = AddOffsetsToTxnRequest(self.transactional_id, self.id, self.epoch, group)
        return name(self.client.ask(request, 3).error_code)

    def commit(self, group: str, offset: int, *, version: int = 3, **member: Any) -> dict[tuple[str, int], str]:
        return commit_in_transaction(
            self.client, group, {PLACE: offset}, self.id, self.epoch, transactional_id=self.transactional_id, version=version, **member
        )

    def end(self, *, committed: bool) -> str:
        request = EndTxnRequest(self.transactional_id, self.id, self.epoch, committed)
        return name(self.client.ask(request, 3).error_code)


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return group_world(transaction_state_log_num_partitions=2, store=str(tmp_path / "store"))


@pytest.fixture
def producer(world: BrokerWorld) -> Producer:
    client = world.connect()
    world.finish(world.broker.coordinators.transactions_topic.ensured())
    return Producer(client)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(("committed", "after"), [(True, 9), (False, 5)])
def test_offsets_count_when_their_transaction_commits(producer: Producer, version: int, committed: bool, after: int) -> None:
    client = producer.client
    commit(client, "g", {PLACE: 5})
    producer.add("g")
    assert producer.commit("g", 9, version=version) == OK
    assert fetch(client, "g", [PLACE]) == {PLACE: 5}
    assert fetch(client, "g", [PLACE], stable=True) == fetch(client, "g", stable=True) == {PLACE: "UNSTABLE_OFFSET_COMMIT"}
    assert fetch(client, "g", [("t", 1)], stable=True) == {("t", 1): -1}
    assert producer.end(committed=committed) == "NONE"
    for stable in (False, True):
        assert fetch(client, "g", [PLACE], stable=stable) == {PLACE: after}


def test_a_group_may_begin_with_a_transaction(producer: Producer) -> None:
    producer.add("new")
    assert producer.commit("new", 3) == OK
    assert fetch(producer.client, "new", [PLACE]) == {PLACE: -1}
    assert fetch(producer.client, "new", [PLACE], stable=True) == {PLACE: "UNSTABLE_OFFSET_COMMIT"}
    producer.end(committed=True)
    assert fetch(producer.client, "new") == {PLACE: 3}


def test_the_later_commit_in_the_log_wins_whenever_the_transaction_ends(producer: Producer) -> None:
    client = producer.client
    producer.add("g")
    producer.commit("g", 9)
    commit(client, "g", {PLACE: 7})
    producer.end(committed=True)
    assert fetch(client, "g") == {PLACE: 7}


def test_from_version_5_on_the_offsets_join_the_transaction_by_themselves(producer: Producer) -> None:
    assert producer.commit("g", 9, version=5) == OK
    producer.end(committed=True)
    assert fetch(producer.client, "g") == {PLACE: 9}


@pytest.mark.parametrize(("version", "code"), [(0, "INVALID_TXN_STATE"), (3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")])
def test_before_they_must_have_been_added(producer: Producer, version: int, code: str) -> None:
    assert producer.commit("g", 9, version=version) == {PLACE: code}
    assert producer.client.world.broker.groups.group_for("g") is None


def test_a_producer_that_was_replaced_is_fenced(producer: Producer) -> None:
    client = producer.client
    producer.add("g")
    assert producer.commit("g", 9) == OK
    newer = Producer(client)
    assert producer.commit("g", 10)[PLACE] in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    assert fetch(client, "g", [PLACE], stable=True) == {PLACE: -1}  # the newer one's first act was to abort
    newer.add("g")
    assert newer.commit("g", 11) == OK
    newer.end(committed=True)
    assert fetch(client, "g") == {PLACE: 11}


def test_an_unknown_transactional_id_commits_nothing(world: BrokerWorld, producer: Producer) -> None:
    for version in (3, 5):
        codes = commit_in_transaction(producer.client, "g", {PLACE: 1}, 4711, transactional_id="no", version=version)
        assert codes == {PLACE: "INVALID_PRODUCER_ID_MAPPING"}


# Members


def test_only_members_of_the_generation_commit_if_they_say_who_they_are(producer: Producer) -> None:
    client = producer.client
    member = join(client, "g", instance="i")
    producer.add("g")
    said: dict[str, Any] = {"member": member.member_id, "generation": member.generation}
    assert producer.commit("g", 1, **said, instance="i") == OK
    assert producer.commit("g", 2, **said) == OK
    assert producer.commit("g", 3) == OK  # an older producer does not say it
    refused = [
        ({**said, "generation": member.generation + 1}, "ILLEGAL_GENERATION"),
        ({**said, "generation": member.generation - 1}, "ILLEGAL_GENERATION"),
        ({**said, "member": "somebody"}, "UNKNOWN_MEMBER_ID"),
        ({**said, "member": "somebody", "instance": "i"}, "FENCED_INSTANCE_ID"),
        ({**said, "instance": "j"}, "UNKNOWN_MEMBER_ID"),
    ]
    assert [producer.commit("g", 4, **who)[PLACE] for who, _ in refused] == [code for _, code in refused]
    producer.end(committed=True)
    assert fetch(client, "g") == {PLACE: 3}


def test_a_member_of_a_group_that_is_not_there_is_of_no_generation(producer: Producer) -> None:
    producer.add("g")
    assert producer.commit("g", 1, member="m", generation=1) == {PLACE: "ILLEGAL_GENERATION"}


def test_the_empty_id_is_no_group_here(producer: Producer) -> None:
    assert producer.commit("", 1) == {PLACE: "INVALID_GROUP_ID"}


def test_partitions_that_are_not_there_and_long_metadata_are_refused_alone(producer: Producer) -> None:
    client = producer.client
    producer.add("g")
    offsets = {PLACE: 1, ("t", 9): 1, ("no", 0): 1}
    assert commit_in_transaction(client, "g", offsets, producer.id, producer.epoch) == {
        PLACE: "NONE",
        ("t", 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert producer.commit("g", 1, metadata="x" * 4097) == {PLACE: "OFFSET_METADATA_TOO_LARGE"}
    assert commit_in_transaction(client, "g", {("no", 0): 1}, 1) == {("no", 0): "UNKNOWN_TOPIC_OR_PARTITION"}


@pytest.mark.parametrize(("version", "code"), [(1, "COORDINATOR_NOT_AVAILABLE"), (2, "COORDINATOR_LOAD_IN_PROGRESS")])
def test_old_producers_are_not_told_that_the_coordinator_loads(producer: Producer, version: int, code: str) -> None:
    for coordinator in producer.client.world.broker.groups.runtime.coordinators():
        coordinator.phase = Phase.LOADING
    assert producer.commit("g", 1, version=version) == {PLACE: code}


# What else touches offsets that wait


def test_a_long_commit_whose_topic_is_deleted_before_it_is_appended_leaves_no_offset(
    monkeypatch: pytest.MonkeyPatch, world: BrokerWorld, producer: Producer
) -> None:
    world.create_topic("wide", 200)
    producer.add("g")
    delete_between_steps(monkeypatch, world, "wide")
    places = {("wide", index): 5 for index in range(200)}
    codes = commit_in_transaction(producer.client, "g", places, producer.id, producer.epoch)
    assert set(codes.values()) == {"COORDINATOR_LOAD_IN_PROGRESS"}
    assert producer.end(committed=True) == "NONE"
    assert world.broker.groups.statistics()["offsets_committed"] == 0


def test_so_does_a_short_one_whose_topic_is_deleted_while_its_transaction_is_brought_to_disk() -> None:
    world = group_world(transaction_state_log_num_partitions=1, log_flush_interval_messages=1)
    world.finish(world.broker.coordinators.transactions_topic.ensured())
    client = world.connect()
    producer = Producer(client)
    world.create_topic("u")
    background = world.background
    background.immediate = False
    topic = TxnOffsetCommitRequestTopic("u", [TxnOffsetCommitRequestPartition(0, 5)])
    client.send(TxnOffsetCommitRequest("tx", "g", producer.id, producer.epoch, topics=[topic]), 5)
    (sync,), background.jobs = background.jobs, []
    background.immediate = True
    world.delete_topics("u")
    background.run(*sync)
    world.clock.settle()
    (answer,) = client.answers()
    assert name(answer.body.topics[0].partitions[0].error_code) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert producer.end(committed=True) == "NONE"
    assert world.broker.groups.statistics()["offsets_committed"] == 0


def test_an_offset_that_is_deleted_takes_those_that_wait_along(producer: Producer) -> None:
    client = producer.client
    producer.add("g")
    producer.commit("g", 9)
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    assert client.ask(OffsetDeleteRequest("g", topics), 0).topics[0].partitions[0].error_code == 0
    assert fetch(client, "g", [PLACE], stable=True) == {PLACE: -1}
    assert producer.end(committed=True) == "NONE"
    assert fetch(client, "g", [PLACE]) == {PLACE: -1}


def test_a_group_that_is_deleted_takes_them_along_too(producer: Producer) -> None:
    client = producer.client
    producer.add("g")
    producer.commit("g", 9)
    assert client.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    assert producer.end(committed=True) == "NONE"
    assert fetch(client, "g") == {}
    client.world.restart()
    client.world.clock.settle()
    assert fetch(client.world.connect(), "g") == {}


@pytest.mark.parametrize(("committed", "after"), [(True, 9), (False, 5)])
def test_offsets_go_on_waiting_over_a_restart(world: BrokerWorld, producer: Producer, committed: bool, after: int) -> None:
    commit(producer.client, "g", {PLACE: 5})
    producer.add("g")
    producer.commit("g", 9)
    world.restart()
    world.clock.settle()
    client = producer.client = world.connect()
    assert fetch(client, "g", [PLACE]) == {PLACE: 5}
    assert fetch(client, "g", [PLACE], stable=True) == {PLACE: "UNSTABLE_OFFSET_COMMIT"}
    assert producer.end(committed=committed) == "NONE"
    world.clock.settle()
    assert fetch(client, "g", [PLACE], stable=True) == {PLACE: after}
    world.restart()
    world.clock.settle()
    assert fetch(world.connect(), "g", [PLACE], stable=True) == {PLACE: after}
