"""A broker that restarts loses its place in in-sync sets unless it says that it lost nothing; the controller misses no restart."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from moldau.cluster import znodes
from moldau.cluster.controller.election_rules import TopicRules, elect
from moldau.cluster.controller.image import ClusterImage
from moldau.cluster.queries import LiveBroker
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.cluster.znodes import PartitionState, decode_incarnations, encode_isr_change, encode_state
from moldau.ports.coordination import Create, Multi, SetData, Write
from support.controllers import Cluster


def cluster_with(replicas: tuple[int, ...], *, latency_s: float = 0.2, configs: Mapping[str, str] = MappingProxyType({})) -> Cluster:
    """Where a bounce is over before the controller looks."""
    cluster = Cluster(4, latency_s)
    cluster.settle(5)
    (broker,) = cluster.controllers()
    broker.create("t", -1, -1, assignments=[(0, replicas)], configs=list(configs.items()))
    cluster.settle(5)
    return cluster


def bounce(cluster: Cluster, *brokers: int, is_clean: bool) -> None:
    for each in brokers:
        cluster.brokers[each].is_clean = is_clean
        cluster.brokers[each].session.expire()
        cluster.brokers[each].session.resume()
    cluster.settle(10)


def write(cluster: Cluster, *writes: Write) -> None:
    cluster.other.submit(Multi(writes), lambda _outcome: None)
    cluster.settle(5)


def state_of(cluster: Cluster) -> PartitionState:
    (state,) = cluster.states("t")
    assert state is not None
    return state


def seen(cluster: Cluster) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    state = state_of(cluster)
    return state.leader, state.isr, state.elr


@pytest.mark.parametrize(
    ("bounced", "is_clean", "after"),
    [
        ((2,), True, (1, (1, 2, 3), ())),
        ((2,), False, (1, (1, 3), ())),
        ((1,), True, (1, (1, 2, 3), ())),
        ((1,), False, (2, (2, 3), ())),
        ((1, 2), False, (3, (3,), ())),
        ((1, 2, 3), False, (1, (1,), ())),
    ],
)
def test_a_bounce_that_no_watch_has_seen(
    bounced: tuple[int, ...], is_clean: bool, after: tuple[int, tuple[int, ...], tuple[int, ...]]
) -> None:
    cluster = cluster_with((1, 2, 3))
    bounce(cluster, *bounced, is_clean=is_clean)
    assert seen(cluster) == after
    epoch = state_of(cluster).leader_epoch
    assert (epoch > 0) == (bounced != (2,) or not is_clean)
    cluster.brokers[0].session.expire()
    cluster.settle(10)
    assert seen(cluster) == after, "the next controller takes account of it no second time"
    assert state_of(cluster).leader_epoch == epoch


def test_an_unclean_restart_while_there_is_no_controller_is_seen_by_the_next_one() -> None:
    cluster = cluster_with((1, 2))
    cluster.brokers[0].session.expire()
    bounce(cluster, 2, is_clean=False)
    assert cluster.controllers()[0].broker_id != 0
    assert seen(cluster) == (1, (1,), ())


def test_sessions_that_end_one_after_the_other_before_a_controller_looks_are_no_unclean_restart() -> None:
    """Or a replica that has lost nothing counts no more than one that has."""
    image, endpoints = ClusterImage(), (Endpoint("PLAINTEXT", "h", 9000),)
    image.incarnations = {1: 4, 2: 5}
    image.set_brokers({1: LiveBroker(BrokerInfo(1, endpoints), 9), 2: LiveBroker(BrokerInfo(2, endpoints), 8, (5, 7))})
    assert image.lossy == {1: 9}
    state = PartitionState(1, 0, (1, 2), 1, leader_broker_epoch=4)
    elected = elect(state, (1, 2), image.candidates(), TopicRules(min_isr=2), controller_epoch=2)
    assert elected is not None
    assert (elected.leader, elected.isr, elected.elr) == (2, (2,), ())


def test_a_restart_ends_eligibility_unless_it_was_clean() -> None:
    for is_clean, after in ((True, (2, (2,), (1,))), (False, (-1, (1,), ()))):
        cluster = cluster_with((1, 2), configs={"min.insync.replicas": "2"})
        for each in (2, 1):
            cluster.brokers[each].session.expire()
            cluster.settle(10)
        assert seen(cluster) == (-1, (1,), (2,))
        bounce(cluster, 2, is_clean=is_clean)
        assert seen(cluster) == after
        bounce(cluster, 1, is_clean=False)
        assert seen(cluster)[0] != -1, "the last one leads whatever it has lost"


def test_a_restart_that_the_store_has_failed_to_take_account_of_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from moldau.model.errors import CoordinationError

    for fails in range(6):
        cluster = cluster_with((1, 2, 3), latency_s=0.0)
        session = cluster.brokers[0].session
        submit, left = session.submit, [fails + 1]

        def failing(request: object, done: object, left: list[int] = left, session=session, submit=submit) -> None:  # type: ignore[no-untyped-def]
            left[0] -= 1
            if not left[0]:
                session.fail_next(CoordinationError("no room", retriable=True))
            submit(request, done)

        monkeypatch.setattr(session, "submit", failing)
        bounce(cluster, 2, is_clean=False)
        assert seen(cluster) == (1, (1, 3), ())


@pytest.mark.parametrize(("is_clean", "after"), [(True, (1, (1, 2, 3), ())), (False, (1, (1, 3), ()))])
@pytest.mark.parametrize("writes_first", [True, False])
def test_a_restart_while_the_leader_has_the_replica_join_is_seen(*, is_clean: bool, writes_first: bool, after: object) -> None:
    """The controller has looked for restarts before it sees that the replica has joined."""
    cluster = cluster_with((1, 3))
    before, incarnation = state_of(cluster), cluster.brokers[2].epoch
    path = znodes.partition_state("t", 0)
    joins = [SetData(path, encode_state(before._replace(isr=(1, 2, 3), joined=((2, incarnation),))))]
    replicas = cluster.controllers()[0].controller.image.topics["t"].replicas
    replicas[0] = (1, 2, 3)
    if writes_first:
        write(cluster, *joins)
    bounce(cluster, 2, is_clean=is_clean)
    if not writes_first:
        write(cluster, *joins)
    write(cluster, Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True))
    assert seen(cluster) == after


def test_incarnations_are_on_the_tree_when_there_are_several_brokers() -> None:
    cluster = cluster_with((1, 2))
    epochs = {broker_id: broker.epoch for broker_id, broker in cluster.brokers.items()}
    assert decode_incarnations("", cluster.data(znodes.INCARNATIONS) or b"") == epochs
    bounce(cluster, 2, is_clean=False)
    assert decode_incarnations("", cluster.data(znodes.INCARNATIONS) or b"")[2] == cluster.brokers[2].epoch > epochs[2]
    assert Cluster(1).data(znodes.INCARNATIONS) is None
