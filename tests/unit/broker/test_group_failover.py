"""Groups of a cluster: their coordinator is the leader of a partition, and the next leader continues with what was acknowledged.

Q1, Q5: defects that other systems had, see docs/decisions/0024-cluster.md.
"""

from moldau.broker.replicas.manager import FollowerState, LeaderState
from moldau.broker.replicas.partition_events import SessionDoubted
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.protocol.messages.partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from support.cluster_clients import SETTINGS, ClusterClient, coordinator_of, found, heartbeat, join_group, partition_of
from support.cluster_world import ClientCall, ClusterWorld
from support.group_requests import commit, fetch, fetch_all, name

OFFSETS = "__consumer_offsets"
T0 = ("t", 0)


def make_cluster(**settings: object) -> ClusterWorld:
    cluster = ClusterWorld(1, 2, 3, **SETTINGS, **settings)
    cluster.create_topic("t", partitions=3)
    cluster.settle()
    return cluster


def send_commit(cluster: ClusterWorld, broker_id: int, group: str, offset: int) -> ClientCall:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset, -1, "")])]
    return cluster.send(broker_id, OffsetCommitRequest(group, -1, "", None, -1, topics), 8)


def answered(call: ClientCall) -> str | None:
    return None if call.response is None else name(call.response.topics[0].partitions[0].error_code)


def test_the_topic_is_made_with_a_replica_on_each_of_three_brokers_whichever_is_asked() -> None:
    for asked in (1, 2):
        cluster = make_cluster()
        assert asked != cluster.controller_id or asked == 1
        error, coordinator = found(cluster, "g", at=asked)
        assert (error, coordinator in (1, 2, 3)) == ("NONE", True)
        assert sorted(cluster.partition(OFFSETS).replicas) == [1, 2, 3]
        assert [found(cluster, "g", at=each) for each in (1, 2, 3)] == [("NONE", coordinator)] * 3


def test_a_number_of_replicas_that_is_configured_is_waited_for_and_the_default_is_capped() -> None:
    """A client that comes while one broker is away must not leave the topic with fewer replicas for ever."""
    for settings, expected in (({"offsets_topic_replication_factor": 3}, 3), ({}, 2)):
        cluster = make_cluster(**settings)
        away = next(each for each in (1, 2, 3) if each != cluster.controller_id)
        cluster.kill(away)
        cluster.until(cluster.agrees)
        error, _ = found(cluster, "g", at=cluster.controller_id)
        assert error == ("NONE" if expected == 2 else "COORDINATOR_NOT_AVAILABLE")
        cluster.start(away)
        cluster.until(cluster.agrees)
        coordinator_of(cluster, "g")
        assert len(cluster.partition(OFFSETS).replicas) == expected


def test_q5_the_coordinator_that_is_named_is_alive_and_none_is_named_where_no_replica_is() -> None:
    cluster = make_cluster(offsets_topic_replication_factor=1)
    dead = next(each for each in (coordinator_of(cluster, f"g{number}") for number in range(9)) if each != cluster.controller_id)
    groups = [f"g{number}" for number in range(9) if coordinator_of(cluster, f"g{number}") == dead]
    cluster.kill(dead)
    cluster.settle()
    for each in cluster.processes:
        assert {found(cluster, group, at=each) for group in groups} == {("COORDINATOR_NOT_AVAILABLE", -1)}
    cluster.start(dead)
    cluster.until(cluster.agrees)
    for group in groups:
        assert coordinator_of(cluster, group) == dead


def test_q5_after_a_rolling_restart_each_group_is_served_by_the_broker_that_is_named() -> None:
    cluster = make_cluster()
    groups = [f"g{number}" for number in range(6)]
    for number, group in enumerate(groups):
        assert commit(ClusterClient(cluster, coordinator_of(cluster, group)), group, {T0: number}, version=8) == {T0: "NONE"}
    for each in (1, 2, 3):
        cluster.stop(each)
        cluster.until(cluster.agrees)
        cluster.start(each)
        cluster.until(lambda: cluster.agrees() and len(cluster.partition(OFFSETS).isr) == 3)
        cluster.advance(1.0)
    for number, group in enumerate(groups):
        for asked in (1, 2, 3):
            assert found(cluster, group, at=asked) == ("NONE", coordinator_of(cluster, group))
        assert fetch(ClusterClient(cluster, coordinator_of(cluster, group)), group, [T0], version=7) == {T0: number}


def test_who_asks_while_no_live_broker_leads_is_answered_when_one_does() -> None:
    """After three refusals within 300 ms librdkafka's `send_offsets_to_transaction` hangs for ever (librdkafka issue 5456)."""
    cluster = make_cluster(offsets_topic_replication_factor=1)
    dead = next(each for each in (coordinator_of(cluster, f"g{number}") for number in range(9)) if each != cluster.controller_id)
    group = next(each for each in (f"g{number}" for number in range(9)) if coordinator_of(cluster, each) == dead)
    cluster.kill(dead)
    cluster.settle()
    calls = [cluster.send(each, FindCoordinatorRequest(coordinator_keys=[group]), 4) for each in cluster.processes]
    cluster.settle()
    assert [call.response for call in calls] == [None, None]
    cluster.start(dead)
    cluster.until(lambda: all(call.response is not None for call in calls))
    named = [call.response.coordinators[0] for call in calls]
    assert [(name(each.error_code), each.node_id) for each in named] == [("NONE", dead)] * 2


def test_a_group_whose_coordinator_ends_continues_in_its_generation_with_its_offsets() -> None:
    for instance in (None, "static"):
        cluster = make_cluster()
        member = join_group(cluster, "g", instance=instance)
        first = coordinator_of(cluster, "g")
        assert heartbeat(cluster, first, "g", member, instance) == "NONE"
        done = commit(
            ClusterClient(cluster, first), "g", {T0: 7}, version=8, generation=member.generation, member=member.member_id, instance=instance
        )
        assert done == {T0: "NONE"}
        cluster.kill(first)
        second = coordinator_of(cluster, "g")
        assert second != first
        assert heartbeat(cluster, second, "g", member, instance) == "NONE"
        assert fetch(ClusterClient(cluster, second), "g", [T0], version=7) == {T0: 7}
        (other,) = [each for each in cluster.processes if each != second]
        assert heartbeat(cluster, other, "g", member, instance) == "NOT_COORDINATOR"


def test_administrators_are_answered_by_the_coordinator_that_they_reach() -> None:
    cluster = make_cluster()
    join_group(cluster, "g")
    coordinator = coordinator_of(cluster, "g")
    for each in (1, 2, 3):
        (described,) = cluster.ask(each, DescribeGroupsRequest(["g"]), 5).groups
        listed = [group.group_id for group in cluster.ask(each, ListGroupsRequest(), 4).groups]
        expected = ("NONE", "Stable", ["g"]) if each == coordinator else ("NOT_COORDINATOR", "", [])
        assert (name(described.error_code), described.group_state, listed) == expected
        (deleted,) = cluster.ask(each, DeleteGroupsRequest(["g"]), 2).results
        assert name(deleted.error_code) == ("NON_EMPTY_GROUP" if each == coordinator else "NOT_COORDINATOR")
        offsets = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("u", [OffsetDeleteRequestPartition(0)])])
        assert name(cluster.ask(each, offsets, 0).error_code) == ("NONE" if each == coordinator else "NOT_COORDINATOR")


def test_z22_a_coordinator_whose_partition_is_moved_resigns_at_once_and_the_next_one_serves() -> None:
    cluster = make_cluster(offsets_topic_replication_factor=2)
    member = join_group(cluster, "g")
    old = coordinator_of(cluster, "g")
    index = partition_of(cluster, "g")
    assert commit(ClusterClient(cluster, old), "g", {T0: 7}, version=8, generation=1, member=member.member_id) == {T0: "NONE"}
    left = sorted({1, 2, 3} - {old})
    moved = ReassignableTopic(OFFSETS, [ReassignablePartition(index, left)])
    answer = cluster.ask(cluster.controller_id, AlterPartitionReassignmentsRequest(topics=[moved]), 0)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    where = TopicPartition(OFFSETS, index)
    cluster.until(lambda: cluster.broker(old).partitions.get(where) is None)
    assert fetch_all(ClusterClient(cluster, old), "g", [T0], version=7)[0] == "NOT_COORDINATOR"
    assert heartbeat(cluster, old, "g", member) == "NOT_COORDINATOR"
    new = coordinator_of(cluster, "g")
    assert new in left
    assert heartbeat(cluster, new, "g", member) == "NONE"
    assert fetch(ClusterClient(cluster, new), "g", [T0], version=7) == {T0: 7}


def test_a_group_keeps_its_offsets_in_a_topic_of_which_a_replica_leaves_its_coordinator() -> None:
    """They go with the topic, not with a replica."""
    cluster = make_cluster()
    coordinator = coordinator_of(cluster, "g")
    where, client = TopicPartition(*T0), ClusterClient(cluster, coordinator)
    for replicas in ([coordinator], sorted({1, 2, 3} - {coordinator})):
        assert commit(client, "g", {T0: 7}, version=8) == {T0: "NONE"}
        moved = ReassignableTopic("t", [ReassignablePartition(0, replicas)])
        answer = cluster.ask(cluster.controller_id, AlterPartitionReassignmentsRequest(topics=[moved]), 0)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        cluster.until(lambda: sorted(cluster.partition("t").replicas) == replicas)  # noqa: B023
    cluster.until(lambda: where not in cluster.broker(coordinator).replicas.hosted)
    cluster.advance(1.0)
    assert fetch(client, "g", [T0], version=7) == {T0: 7}


# What is not replicated


def test_a_follower_that_ends_costs_no_group_its_coordinator_and_what_waited_for_it_is_acknowledged() -> None:
    cluster = make_cluster()
    coordinator = next(each for each in (coordinator_of(cluster, f"g{number}") for number in range(9)) if each == cluster.controller_id)
    group = next(f"g{number}" for number in range(9) if coordinator_of(cluster, f"g{number}") == coordinator)
    runtime = cluster.broker(coordinator).groups.runtime
    before = runtime.coordinator_of(group)
    epoch = before.epoch
    follower = hang_followers(cluster, coordinator)[0]
    call = send_commit(cluster, coordinator, group, 5)
    cluster.advance(0.1)
    for each in list(cluster.processes):
        if each not in (coordinator, follower):
            cluster.processes[each].resume()
    cluster.kill(follower)
    cluster.until(lambda: answered(call) is not None)
    assert answered(call) == "NONE"
    assert runtime.coordinator_of(group) is before
    assert before.epoch > epoch


def hang_followers(cluster: ClusterWorld, leader: int) -> list[int]:
    followers = [each for each in cluster.processes if each != leader]
    for each in followers:
        cluster.processes[each].hang()
    return followers


def test_a_commit_that_is_not_replicated_is_not_acknowledged_and_its_client_learns_that_in_time() -> None:
    cluster = make_cluster()
    coordinator = coordinator_of(cluster, "g")
    replicas = cluster.broker(coordinator).replicas
    hosted = replicas.hosted[TopicPartition(OFFSETS, partition_of(cluster, "g"))]
    replicas.step(hosted, SessionDoubted(True))
    call = send_commit(cluster, coordinator, "g", 5)
    cluster.advance(4.9)
    assert answered(call) is None
    cluster.advance(0.2)
    assert answered(call) == "COORDINATOR_NOT_AVAILABLE"
    assert fetch(ClusterClient(cluster, coordinator), "g", [T0], version=7) == {T0: -1}
    replicas.step(hosted, SessionDoubted(False))
    cluster.advance(2.0)
    assert fetch(ClusterClient(cluster, coordinator), "g", [T0], version=7) == {T0: 5}, "it is in the log, and replicated by now"


def test_q1_a_commit_that_the_next_leader_lacks_is_no_success_when_the_old_one_follows_and_moves_on() -> None:
    cluster = make_cluster()
    old = coordinator_of(cluster, "g")
    where = TopicPartition(OFFSETS, partition_of(cluster, "g"))
    state = cluster.partition(OFFSETS, where.partition)
    assert commit(ClusterClient(cluster, old), "g", {T0: 1}, version=8) == {T0: "NONE"}
    cluster.settle()
    new, other = hang_followers(cluster, old)
    call = send_commit(cluster, old, "g", 2)
    cluster.advance(0.05)
    assert cluster.broker(old).replicas.hosted[where].log.log_end_offset == 2
    settings = cluster.broker(old).topic_settings.of(cluster.broker(old).metadata.topic_config(OFFSETS))
    topic_id = cluster.broker(old).metadata.topics[OFFSETS].topic_id
    epoch = state.leader_epoch + 1
    for each in (new, old, other):
        replicas = cluster.broker(each).replicas
        if each == new:
            replicas.become_leader(where, LeaderState(epoch, 9, state.replicas, state.replicas), topic_id, settings)
        else:
            replicas.become_follower(where, FollowerState(epoch, 9, state.replicas, new), topic_id, settings)
    for each in (new, other):
        cluster.processes[each].resume()
    same = next(f"h{number}" for number in range(99) if partition_of(cluster, f"h{number}") == where.partition)
    cluster.advance(0.5)
    for offset in range(3):
        assert commit(ClusterClient(cluster, new), same, {T0: offset}, version=8) == {T0: "NONE"}
    cluster.advance(1.0)
    assert cluster.broker(old).replicas.hosted[where].log.high_watermark > 2
    assert answered(call) == "NOT_COORDINATOR"
    assert fetch(ClusterClient(cluster, new), "g", [T0], version=7) == {T0: 1}


def test_a_coordinator_that_is_cut_off_answers_no_more_what_may_be_old_once_another_is_elected() -> None:
    """It does not learn that there is another one, for as long as it is cut off; clients that reach it do."""
    cluster = make_cluster()
    first = coordinator_of(cluster, "g")
    index = partition_of(cluster, "g")
    client = ClusterClient(cluster, first)
    assert commit(client, "g", {T0: 7}, version=8) == {T0: "NONE"}
    session = cluster.processes[first].session
    session.suspend()
    cluster.advance(cluster.broker(first).config.int("zookeeper.session.timeout.ms") / 1000 - 1.0)
    assert fetch(client, "g", [T0], version=7) == {T0: 7}, "in doubt, but its followers have no other leader"
    session.expire()
    other = next(each for each in cluster.processes if each != first)
    cluster.until(lambda: cluster.partition(OFFSETS, index, on=other).leader not in (first, -1))
    cluster.advance(3.0)
    assert cluster.broker(first).partitions.get(TopicPartition(OFFSETS, index)) is not None
    assert fetch_all(client, "g", version=7)[0] == "NOT_COORDINATOR"
    session.resume()
    cluster.until(cluster.agrees)
    second = coordinator_of(cluster, "g")
    assert fetch(ClusterClient(cluster, second), "g", [T0], version=7) == {T0: 7}


def test_where_no_broker_reaches_the_tree_for_minutes_groups_keep_their_members_and_commit_again_afterwards() -> None:
    cluster = make_cluster()
    member = join_group(cluster, "g")
    coordinator = coordinator_of(cluster, "g")
    client = ClusterClient(cluster, coordinator)

    def committed(offset: int) -> dict[tuple[str, int], str]:
        return commit(client, "g", {T0: offset}, version=8, generation=member.generation, member=member.member_id)

    assert committed(7) == {T0: "NONE"}
    for process in cluster.processes.values():
        process.session.suspend()
    for _ in range(60):
        cluster.advance(3.0)
        assert heartbeat(cluster, coordinator, "g", member) == "NONE"
        assert fetch(client, "g", [T0], version=7) == {T0: 7}
    assert committed(8) == {T0: "COORDINATOR_NOT_AVAILABLE"}
    for process in cluster.processes.values():
        process.session.resume()
    cluster.advance(2.0)
    assert found(cluster, "g") == ("NONE", coordinator)
    assert heartbeat(cluster, coordinator, "g", member) == "NONE"
    assert fetch(client, "g", [T0], version=7) == {T0: 8}, "it is in the log, and replicated by now"
    assert committed(9) == {T0: "NONE"}


def test_a_coordinator_that_no_other_can_follow_serves_on_without_the_tree() -> None:
    cluster = make_cluster(offsets_topic_replication_factor=1)
    first = coordinator_of(cluster, "g")
    cluster.processes[first].session.suspend()
    cluster.advance(60.0)
    client = ClusterClient(cluster, first)
    assert commit(client, "g", {T0: 7}, version=8) == {T0: "NONE"}
    assert fetch(client, "g", [T0], version=7) == {T0: 7}
