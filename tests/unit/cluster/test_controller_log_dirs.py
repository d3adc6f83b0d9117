"""Where a log directory of a live broker has failed, others lead what was in it; a node tells the controller, the broker's answer which."""

from moldau.cluster import znodes
from moldau.cluster.changes import PutLogDirEvent, PutState, writes_of
from moldau.cluster.znodes import encode_isr_change
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Multi, Write
from support.controllers import Broker, Cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_with(*replicas: tuple[int, ...]) -> Cluster:
    """Broker 0 is controller and has no replica."""
    cluster = Cluster(4)
    cluster.settle(5)
    active(cluster).create("t", -1, -1, assignments=list(enumerate(replicas)))
    cluster.settle(5)
    return cluster


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


def write(cluster: Cluster, *writes: Write) -> None:
    cluster.other.submit(Multi(writes), lambda _outcome: None)
    cluster.settle(5)


def fails(cluster: Cluster, broker_id: int, *partitions: TopicPartition) -> None:
    """These lie in a directory that fails."""
    cluster.brokers[broker_id].offline.update(dict.fromkeys(partitions))
    write(cluster, *writes_of(PutLogDirEvent(broker_id)))
    assert cluster.children(znodes.LOG_DIR_EVENTS) == []


def led(cluster: Cluster) -> list[tuple[int, tuple[int, ...]]]:
    return [(state.leader, state.isr) for state in cluster.states("t") if state is not None]


def test_others_lead_what_was_in_it_and_only_that() -> None:
    cluster = cluster_with((1, 2, 3), (1, 2, 3), (2, 1, 3))
    fails(cluster, 1, T0)
    assert led(cluster) == [(2, (2, 3)), (1, (1, 2, 3)), (2, (2, 1, 3))]
    fails(cluster, 1, T0, T1)
    assert led(cluster) == [(2, (2, 3)), (2, (2, 3)), (2, (2, 1, 3))]


def test_without_another_in_sync_replica_there_is_no_leader_until_the_broker_has_its_log_again() -> None:
    cluster = cluster_with((1, 2))
    state = cluster.states("t")[0]
    assert state is not None
    write(cluster, *writes_of(PutState("t", 0, state._replace(isr=(1,)), 0)), notification())
    fails(cluster, 1, T0)
    assert led(cluster) == [(-1, (1,))]
    cluster.brokers[1].session.expire()
    cluster.settle(5)
    cluster.brokers[1].offline.clear()
    cluster.brokers[1].session.resume()
    cluster.settle(5)
    assert led(cluster) == [(1, (1,))]


def test_a_broker_that_has_its_log_again_leads_without_another_registration() -> None:
    cluster = cluster_with((1, 2), (1, 2))
    cluster.brokers[2].session.expire()
    cluster.settle(5)
    fails(cluster, 1, T0, T1)
    assert led(cluster) == [(-1, (1,)), (-1, (1,))]
    cluster.brokers[1].is_up = False
    write(cluster, *writes_of(PutLogDirEvent(1)))
    assert led(cluster) == [(-1, (1,)), (-1, (1,))], "who has not applied it has not said that it has its logs"
    cluster.brokers[1].is_up = True
    del cluster.brokers[1].offline[T0]
    write(cluster, *writes_of(PutLogDirEvent(1)))
    assert led(cluster) == [(1, (1,)), (-1, (1,))]


def notification() -> Create:
    return Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True)


def test_a_broker_that_registers_with_a_failed_directory_does_not_lead_what_is_in_it() -> None:
    cluster = cluster_with((1, 2))
    cluster.brokers[1].session.expire()
    cluster.brokers[1].offline[T0] = None
    cluster.brokers[1].session.resume()
    cluster.settle(5)
    assert led(cluster) == [(2, (2,))]


def test_a_replica_that_joins_again_is_offline_no_more() -> None:
    cluster = cluster_with((1, 2))
    fails(cluster, 1, T0)
    cluster.brokers[1].offline.clear()
    state, version = cluster.states("t")[0], active(cluster).controller.image.topics["t"].info(0).state_version
    assert state is not None
    write(cluster, *writes_of(PutState("t", 0, state._replace(isr=(2, 1)), version)), notification())
    assert led(cluster) == [(2, (2, 1))]
    cluster.brokers[2].session.expire()
    cluster.settle(5)
    assert led(cluster) == [(1, (1,))]


def test_a_partition_with_one_replica_keeps_its_leader_which_says_what_is_wrong() -> None:
    cluster = cluster_with((1,))
    fails(cluster, 1, T0)
    assert led(cluster) == [(1, (1,))]


def test_a_notification_that_cannot_be_read_is_removed_and_one_of_before_a_controller_is_read_by_it() -> None:
    cluster = cluster_with((1, 2), (2, 1))
    write(cluster, Create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", b"{", sequential=True))
    assert cluster.children(znodes.LOG_DIR_EVENTS) == []
    cluster.brokers[0].session.suspend()
    cluster.brokers[1].offline[T0] = None
    write(cluster, *writes_of(PutLogDirEvent(1)))
    cluster.brokers[0].session.expire()
    cluster.settle(10)
    assert led(cluster) == [(2, (2,)), (2, (2, 1))]
    assert cluster.children(znodes.LOG_DIR_EVENTS) == []
