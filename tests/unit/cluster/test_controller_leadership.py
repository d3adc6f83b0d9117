"""Leaders move on request, before a broker ends, and back into balance; what leaders and tools write is taken account of."""

from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import PutState, PutTopicConfig, writes_of
from moldau.cluster.controller.requests import AlterConfig, ConfigEdit, ConfigOperation, ConfigTarget, ElectLeaders, ShutDownBroker
from moldau.cluster.queries import FoundState
from moldau.cluster.znodes import PartitionState, decode_state, encode_config, encode_config_change, encode_isr_change, encode_state
from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, GetData, Multi, SetData, Write
from support.controllers import Broker, Cluster, error_of

T0 = TopicPartition("t", 0)


def cluster_with(*replicas: tuple[int, ...], settings: tuple[str, ...] = (), minimum: str | None = None) -> Cluster:
    cluster = Cluster(4, 0.0, *settings)
    cluster.settle(5)
    active(cluster).create(
        "t", -1, -1, assignments=list(enumerate(replicas)), configs=[("min.insync.replicas", minimum)] * (minimum is not None)
    )
    cluster.settle(5)
    return cluster


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


def write(cluster: Cluster, *writes: Write) -> None:
    cluster.other.submit(Multi(writes), lambda _outcome: None)
    cluster.settle(3)


def leaders(cluster: Cluster) -> list[int]:
    """On the tree, as live brokers know them too."""
    found = [state.leader for state in cluster.states("t") if state is not None]
    for broker_id in map(int, cluster.children(znodes.BROKER_IDS)):
        assert [info.leader for info in cluster.brokers[broker_id].snapshot.topics["t"].partitions] == found
    return found


def put_isr(cluster: Cluster, isr: tuple[int, ...], *, notifies: bool = True) -> None:
    """As a leader does."""
    broker = active(cluster)
    state = cluster.states("t")[0]
    assert state is not None
    version = broker.controller.image.topics["t"].info(0).state_version
    notification = [Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True)] if notifies else []
    write(cluster, *writes_of(PutState("t", 0, state._replace(isr=isr), version)), *notification)


def ask(cluster: Cluster, request: Any) -> Any:
    outcomes = active(cluster).ask(request)
    cluster.settle(5)
    return outcomes[0]


def moved_away(cluster: Cluster) -> None:
    """Partition 0 is led by broker 2 although broker 1 is preferred and in sync."""
    cluster.brokers[1].session.expire()
    cluster.settle(5)
    cluster.brokers[1].session.resume()
    cluster.settle(5)
    put_isr(cluster, (2, 1))


# ElectLeaders


def test_the_preferred_replica_is_elected_on_request_if_it_is_in_sync() -> None:
    cluster = cluster_with((1, 2), (2, 1))
    moved_away(cluster)
    assert leaders(cluster) == [2, 2]
    outcome = ask(cluster, ElectLeaders([T0, TopicPartition("t", 1), TopicPartition("t", 9), TopicPartition("no", 0)]))
    assert {str(each): error_of(error) for each, error in outcome.items()} == {
        "t-0": "NONE", "t-1": "ELECTION_NOT_NEEDED", "t-9": "UNKNOWN_TOPIC_OR_PARTITION", "no-0": "UNKNOWN_TOPIC_OR_PARTITION",
    }  # fmt: skip
    assert leaders(cluster) == [1, 2]


def test_of_all_partitions_those_that_need_no_election_are_left_out() -> None:
    cluster = cluster_with((1, 2), (2, 1))
    assert ask(cluster, ElectLeaders(None)) == {}
    moved_away(cluster)
    assert ask(cluster, ElectLeaders(None)) == {T0: None}
    assert leaders(cluster) == [1, 2]


def test_a_preferred_replica_that_is_not_in_sync_is_not_elected() -> None:
    cluster = cluster_with((1, 2))
    moved_away(cluster)
    put_isr(cluster, (2,))
    assert error_of(ask(cluster, ElectLeaders([T0]))[T0]) == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert leaders(cluster) == [2]


def test_an_unclean_leader_is_elected_on_request_only_where_no_other_leads() -> None:
    cluster = cluster_with((1, 2))
    assert error_of(ask(cluster, ElectLeaders([T0], unclean=True))[T0]) == "ELECTION_NOT_NEEDED"
    put_isr(cluster, (1,))
    cluster.brokers[1].session.expire()
    cluster.settle(5)
    assert leaders(cluster) == [-1]
    assert error_of(ask(cluster, ElectLeaders([T0]))[T0]) == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert ask(cluster, ElectLeaders(None, unclean=True)) == {T0: None}
    assert leaders(cluster) == [2]
    cluster.brokers[2].session.expire()
    cluster.settle(5)
    assert error_of(ask(cluster, ElectLeaders([T0], unclean=True))[T0]) == "ELIGIBLE_LEADERS_NOT_AVAILABLE"


# Controlled shutdown


def test_a_broker_that_shuts_down_leads_nothing_that_others_can_and_gets_nothing_until_it_is_back() -> None:
    cluster = cluster_with((1, 2), (2, 1), (3, 1))
    assert ask(cluster, ShutDownBroker(1, cluster.brokers[1].epoch)) == []
    assert leaders(cluster) == [2, 2, 3]
    assert [state and state.isr for state in cluster.states("t")] == [(2,), (2,), (3,)]
    put_isr(cluster, (2, 1))
    assert [state and state.isr for state in cluster.states("t")] == [(2,), (2,), (3,)], "it leaves again"
    cluster.brokers[1].session.expire()
    cluster.settle(5)
    cluster.brokers[1].session.resume()
    cluster.settle(5)
    put_isr(cluster, (2, 1))
    assert ask(cluster, ElectLeaders([T0])) == {T0: None}
    assert leaders(cluster) == [1, 2, 3]


def test_a_broker_that_shuts_down_stops_what_it_follows_and_is_sent_none_of_it_again() -> None:
    cluster = cluster_with((1, 2, 3), (2, 1, 3))
    cluster.brokers[1].take()
    assert ask(cluster, ShutDownBroker(1)) == []
    assert cluster.brokers[1].take()[-1] == "stop t [0, 1]"
    assert cluster.brokers[1].led == {}
    cluster.brokers[2].session.expire()
    cluster.settle(5)
    assert leaders(cluster) == [3, 3]
    assert [each for each in cluster.brokers[1].take() if each.startswith("lead")] == []


def test_partitions_whose_in_sync_replicas_all_shut_down_keep_the_last_leader() -> None:
    cluster = cluster_with((1, 2))
    assert ask(cluster, ShutDownBroker(1)) == []
    assert leaders(cluster) == [2]
    assert ask(cluster, ShutDownBroker(2)) == [T0]
    assert leaders(cluster) == [2]
    assert cluster.states("t")[0] == PartitionState(2, 1, (2,), 1, cluster.brokers[2].epoch)


def test_who_asks_for_another_incarnation_or_an_unknown_broker_is_refused() -> None:
    cluster = cluster_with((1, 2))
    assert error_of(ask(cluster, ShutDownBroker(1, 1_000_000))) == "STALE_BROKER_EPOCH"
    assert error_of(ask(cluster, ShutDownBroker(9))) == "BROKER_NOT_AVAILABLE"
    assert leaders(cluster) == [1]


# Balance


def test_leaders_move_back_when_more_than_a_tenth_of_a_brokers_partitions_are_led_elsewhere() -> None:
    cluster = cluster_with((1, 2))
    moved_away(cluster)
    cluster.settle(320)
    assert leaders(cluster) == [1]
    for settings in (("auto.leader.rebalance.enable=false",), ("leader.imbalance.per.broker.percentage=100",)):
        still = cluster_with((1, 2), settings=settings)
        moved_away(still)
        still.settle(620)
        assert leaders(still) == [2]


# Deletion


def test_a_topic_with_a_replica_on_a_dead_broker_is_deleted_under_the_next_controller_when_that_is_back() -> None:
    cluster = cluster_with((1, 2))
    cluster.brokers[2].session.expire()
    cluster.settle(5)
    active(cluster).delete("t")
    cluster.settle(5)
    cluster.brokers[0].session.expire()
    cluster.settle(5)
    assert cluster.children(znodes.DELETE_TOPICS) == ["t"]
    assert active(cluster).broker_id != 0
    cluster.brokers[2].session.resume()
    cluster.settle(5)
    assert cluster.children(znodes.DELETE_TOPICS) == cluster.children(znodes.TOPICS) == []
    assert cluster.brokers[2].led == {}


# What leaders write


def test_in_sync_sets_that_leaders_write_are_announced_and_their_notifications_removed() -> None:
    cluster = cluster_with((1, 2, 3))
    for broker in cluster.brokers.values():
        broker.take()
    put_isr(cluster, (1, 3))
    assert all(broker.snapshot.topics["t"].partitions[0].isr == (1, 3) for broker in cluster.brokers.values())
    assert [broker.take() for broker in cluster.brokers.values()] == [["update ['t'] without []"]] * 4, "leaders know what they wrote"
    assert cluster.children(znodes.ISR_CHANGES) == []


def test_a_notification_that_cannot_be_read_or_names_nothing_is_removed() -> None:
    cluster = cluster_with((1, 2))
    write(cluster, Create(f"{znodes.ISR_CHANGES}/isr_change_", b"{", sequential=True))
    write(cluster, Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("no", 0), ("t", 7), ("t", -1)]), sequential=True))
    assert cluster.children(znodes.ISR_CHANGES) == []
    put_isr(cluster, (1,))
    assert active(cluster).snapshot.topics["t"].partitions[0].isr == (1,)


def test_notifications_are_read_by_the_next_controller() -> None:
    cluster = cluster_with((1, 2))
    state = cluster.states("t")[0]
    assert state is not None
    cluster.brokers[0].session.suspend()
    notification = Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True)
    write(cluster, *writes_of(PutState("t", 0, state._replace(isr=(1,)), 0)), notification)
    assert cluster.children(znodes.ISR_CHANGES) != []
    cluster.brokers[0].session.expire()
    cluster.settle(10)
    assert cluster.children(znodes.ISR_CHANGES) == []
    assert active(cluster).snapshot.topics["t"].partitions[0].isr == (1,)


def test_an_in_sync_set_that_an_election_has_read_before_its_notification_is_sent_all_the_same() -> None:
    """Seed 8356: a reassignment did not end, since the controller took nothing for new that it was notified of."""
    cluster = cluster_with((1, 2))
    put_isr(cluster, (1,), notifies=False)
    state, image = cluster.states("t")[0], active(cluster).controller.image.topics["t"]
    assert state is not None
    assert image.take(0, FoundState(state, image.info(0).state_version + 1))
    assert active(cluster).snapshot.topics["t"].partitions[0].isr == (1, 2)
    write(cluster, Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True))
    assert active(cluster).snapshot.topics["t"].partitions[0].isr == (1,)


# Settings


def offline() -> Cluster:
    cluster = cluster_with((1, 2))
    put_isr(cluster, (1,))
    cluster.brokers[1].session.expire()
    cluster.settle(5)
    assert leaders(cluster) == [-1]
    return cluster


def test_unclean_election_enabled_live_acts_on_partitions_that_are_offline_already() -> None:
    """Z23: asked for, or written by a tool; for the topic, or for all."""
    edits = [ConfigEdit("unclean.leader.election.enable", ConfigOperation.SET, "true")]
    cluster = offline()
    assert not isinstance(ask(cluster, AlterConfig(ConfigTarget("t"), edits)), PeerError)
    assert leaders(cluster) == [2]
    cluster = offline()
    write(cluster, *writes_of(PutTopicConfig("t", {"unclean.leader.election.enable": "true"}, 0)))
    assert leaders(cluster) == [2]
    cluster = offline()
    write(cluster, *writes_of(PutTopicConfig("t", {"retention.ms": "5"}, 0)))
    assert leaders(cluster) == [-1]


def test_eligible_replicas_are_forgotten_when_the_minimum_changes() -> None:
    for minimum in ("1", "3"):
        cluster = cluster_with((1, 2), minimum="2")
        cluster.brokers[2].session.expire()
        cluster.settle(5)
        assert [state and state.elr for state in cluster.states("t")] == [(2,)]
        ask(cluster, AlterConfig(ConfigTarget("t"), [ConfigEdit("retention.ms", ConfigOperation.SET, "5")]))
        assert [state and state.elr for state in cluster.states("t")] == [(2,)], "nothing else ends it"
        ask(cluster, AlterConfig(ConfigTarget("t"), [ConfigEdit("min.insync.replicas", ConfigOperation.SET, minimum)]))
        assert [state and (state.isr, state.elr) for state in cluster.states("t")] == [((1,), ())]


@pytest.mark.parametrize("minimum", ["1", "3"])
@pytest.mark.parametrize("raced", [False, True])
def test_no_broker_sees_another_minimum_and_replicas_that_are_eligible_by_the_one_before(minimum: str, *, raced: bool) -> None:
    """A leader that obeys a lower minimum commits without them. `raced`: a leader has written its in-sync set meanwhile."""
    cluster = cluster_with((1, 2, 3), minimum="2")
    for each in (3, 2):
        cluster.brokers[each].session.expire()
        cluster.settle(5)
    assert [state and state.elr for state in cluster.states("t")] == [(2,)]
    if raced:
        (state,) = cluster.states("t")
        assert state is not None
        write(cluster, SetData(znodes.partition_state("t", 0), encode_state(state._replace(last_known_elr=(3,)))))
    seen: list[Any] = []
    cluster.other.submit(GetData(znodes.topic_config("t"), watch=True), lambda _outcome: None)
    cluster.other.listen(lambda _event: cluster.other.submit(GetData(znodes.partition_state("t", 0)), seen.append))
    seen.clear()
    altered = ask(cluster, AlterConfig(ConfigTarget("t"), [ConfigEdit("min.insync.replicas", ConfigOperation.SET, minimum)]))
    assert altered.after == {"min.insync.replicas": minimum}
    assert [decode_state("", each.data).elr for each in seen] == [()]
    assert leaders(cluster) == [1]
    assert active(cluster).snapshot.topics["t"].partitions[0].elr == ()


def test_the_default_of_all_topics_counts_when_the_controllers_broker_obeys_it() -> None:
    cluster = offline()
    broker = active(cluster)
    broker.controller._config.set_dynamic(own={}, cluster={"unclean.leader.election.enable": "true"}, nodes=("", ""))
    write(
        cluster,
        Create(znodes.broker_config(None), encode_config({"unclean.leader.election.enable": "true"})),
        Create(f"{znodes.CONFIG_CHANGES}/config_change_", encode_config_change("brokers/<default>"), sequential=True),
    )
    assert leaders(cluster) == [2]


def test_a_state_that_a_tool_has_spoiled_stops_only_its_own_notification() -> None:
    cluster = cluster_with((1, 2))
    write(
        cluster,
        SetData(znodes.partition_state("t", 0), b"?"),
        Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True),
    )
    assert cluster.children(znodes.ISR_CHANGES) == []
