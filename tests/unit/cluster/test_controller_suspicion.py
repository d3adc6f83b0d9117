"""What a broker leads that is registered and does not answer, others lead: safely also if it lives, and not too often (W3)."""

from itertools import pairwise

from moldau.cluster import znodes
from moldau.cluster.changes import PutState, writes_of
from moldau.cluster.controller.back_offs import FIRST_MS, MAX_MS, BackOffs
from moldau.cluster.controller.events import BrokerSuspected, ControllerSuspected
from moldau.cluster.controller.machine import ControllerRole
from moldau.cluster.controller.requests import ElectLeaders, ReportLeader
from moldau.cluster.controller.suspicion import REPORT_TIMES
from moldau.cluster.znodes import encode_isr_change
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Multi
from support.controllers import Broker, Cluster, error_of

T0 = TopicPartition("t", 0)


def cluster_with(*replicas: tuple[int, ...], minimum: str = "2") -> Cluster:
    """Broker 0 is controller and has no replica."""
    cluster = Cluster(4)
    cluster.settle(5)
    active(cluster).create("t", -1, -1, assignments=list(enumerate(replicas)), configs=[("min.insync.replicas", minimum)])
    cluster.settle(5)
    return cluster


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


def suspect(cluster: Cluster, broker_id: int, *, is_suspected: bool = True, epoch: int | None = None, seconds: float = 0.0) -> None:
    epoch = cluster.brokers[broker_id].epoch if epoch is None else epoch
    active(cluster).runner.take(BrokerSuspected(broker_id, epoch, is_suspected))
    cluster.settle(seconds)


def report(cluster: Cluster, leader_id: int, reporter_id: int, *, epoch: int | None = None) -> None:
    """A follower gets nothing from a leader."""
    epoch = cluster.brokers[reporter_id].epoch if epoch is None else epoch
    outcomes = active(cluster).ask(ReportLeader(leader_id, reporter_id, epoch))
    cluster.settle()
    assert outcomes == [[]]


def led(cluster: Cluster, index: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, in-sync set and eligible replicas."""
    state = cluster.states("t")[index]
    assert state is not None
    return state.leader, state.isr, state.elr


def joins(cluster: Cluster, *isr: int) -> None:
    """The leader writes this in-sync set."""
    state = cluster.states("t")[0]
    assert state is not None
    version = active(cluster).controller.image.topics["t"].info(0).state_version
    notification = Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True)
    cluster.other.submit(Multi((*writes_of(PutState("t", 0, state._replace(isr=isr), version)), notification)), lambda _outcome: None)
    cluster.settle()


def test_others_lead_and_it_leaves_in_sync_sets_at_once() -> None:
    cluster = cluster_with((1, 2, 3), (2, 1, 3), (2, 3, 0))
    suspect(cluster, 1)
    assert [led(cluster, index) for index in range(3)] == [(2, (2, 3), ()), (2, (2, 3), ()), (2, (2, 3, 0), ())]
    assert [state and state.leader_epoch for state in cluster.states("t")] == [1, 1, 0]
    assert cluster.brokers[2].led[T0] == cluster.brokers[1].led[T0] == (2, 1), "both are sent the new epoch"
    assert "1" in cluster.children(znodes.BROKER_IDS)


def test_where_too_few_stay_it_is_eligible_and_leads_again_if_the_other_one_ends() -> None:
    cluster = cluster_with((1, 2))
    suspect(cluster, 1)
    assert led(cluster) == (2, (2,), (1,))
    cluster.brokers[2].session.expire()
    cluster.settle(5)
    assert led(cluster) == (1, (1,), (2,))


def test_the_last_in_sync_replica_and_one_among_suspected_ones_keep_what_they_lead() -> None:
    cluster = cluster_with((1, 2), minimum="1")
    joins(cluster, 1)
    suspect(cluster, 1)
    assert led(cluster) == (1, (1,), ())
    cluster = cluster_with((1, 2), minimum="1")
    suspect(cluster, 2)
    joins(cluster, 1, 2)
    suspect(cluster, 1, seconds=5)
    assert led(cluster) == (1, (1, 2), ())


def test_an_earlier_registration_is_not_suspected_for_a_later_one() -> None:
    cluster = cluster_with((1, 2))
    epoch = cluster.brokers[1].epoch
    suspect(cluster, 1, epoch=epoch - 1)
    assert led(cluster)[0] == 1
    suspect(cluster, 1)
    cluster.brokers[1].session.expire()
    cluster.brokers[1].session.resume()
    cluster.settle(5)
    joins(cluster, 2, 1)
    assert error_of(active(cluster).ask(ElectLeaders([T0]))[0]) == "NONE"
    cluster.settle(5)
    assert led(cluster) == (1, (2, 1), ()), "it is suspected no more"


def test_a_suspected_broker_is_elected_last_and_not_preferred() -> None:
    cluster = cluster_with((1, 2, 3), minimum="1")
    suspect(cluster, 1)
    joins(cluster, 2, 3, 1)
    outcomes = active(cluster).ask(ElectLeaders([T0]))
    cluster.settle()
    assert error_of(outcomes[0][T0]) == "PREFERRED_LEADER_NOT_AVAILABLE"
    cluster.brokers[2].session.expire()
    cluster.settle()
    assert led(cluster)[0] == 3


def test_one_that_answers_joins_again_and_stays() -> None:
    cluster = cluster_with((1, 2, 3))
    suspect(cluster, 1)
    suspect(cluster, 1, is_suspected=False)
    joins(cluster, 2, 3, 1)
    cluster.settle(120)
    assert led(cluster)[1] == (2, 3, 1)


def test_while_some_connections_work_and_others_do_not_leaders_move_ever_less_often() -> None:
    """A leader that everyone but the controller reaches joins again each time."""
    cluster = cluster_with((1, 2, 3))
    epochs = []
    for _ in range(900):
        suspect(cluster, 1, seconds=0.1)
        if 1 not in led(cluster)[1]:
            joins(cluster, *led(cluster)[1], 1)
            epochs.append(cluster.clock.monotonic())
        cluster.settle(1.0)
    gaps = [after - before for before, after in pairwise(epochs)]
    assert gaps[0] < 3
    assert all(after > before - 1.2 for before, after in pairwise(gaps)), "it is looked at once a second"
    assert all(59 <= gap < 63 for gap in gaps[6:])
    assert len(gaps) >= 18, "it does not stop either"


def test_a_leader_that_most_followers_in_sync_report_is_replaced() -> None:
    cluster = cluster_with((1, 2, 3), (1, 0, 2), (2, 1, 3))
    report(cluster, 1, 2)
    assert led(cluster)[0] == 1, "one of two is not most"
    report(cluster, 1, 3)
    assert [led(cluster, index) for index in range(3)] == [(2, (2, 3), ()), (1, (1, 0, 2), ()), (2, (2, 1, 3), ())]
    assert cluster.brokers[2].led[T0] == cluster.brokers[1].led[T0] == (2, 1), "both are sent the new epoch"
    cluster.settle(60)
    assert [state and state.leader_epoch for state in cluster.states("t")] == [1, 0, 0]


def test_of_two_in_sync_neither_is_believed_for_it_may_itself_be_cut_off() -> None:
    """Claim: with a minimum of one it would be the only one in sync, and nothing could lead when its session ends."""
    cluster = cluster_with((1, 2, 3), minimum="1")
    joins(cluster, 1, 2)
    report(cluster, 1, 3)
    report(cluster, 1, 2)
    assert led(cluster) == (1, (1, 2), ())
    joins(cluster, 1)
    report(cluster, 1, 2)
    report(cluster, 1, 3)
    assert led(cluster) == (1, (1,), ()), "the last one in sync leads whatever others report"


def test_reports_expire_and_those_of_earlier_registrations_do_not_count() -> None:
    cluster = cluster_with((1, 2, 3))
    report(cluster, 1, 2)
    cluster.settle(REPORT_TIMES * 1.5 + 0.1)
    report(cluster, 1, 3)
    assert led(cluster)[0] == 1
    report(cluster, 1, 2, epoch=cluster.brokers[2].epoch - 1)
    report(cluster, 9, 2)
    assert led(cluster)[0] == 1
    report(cluster, 1, 2)
    assert led(cluster)[0] == 2


def test_a_leader_that_is_reported_again_and_again_moves_ever_less_often() -> None:
    """Two followers report whichever other broker leads: the partition moves at most once in its back-off."""
    cluster = cluster_with((1, 2, 3))
    moves = []
    for _ in range(600):
        leader = led(cluster)[0]
        for other in (each for each in (1, 2, 3) if each != leader):
            report(cluster, leader, other)
        cluster.settle(0.5)
        if led(cluster)[0] != leader:
            moves.append(cluster.clock.monotonic())
            joins(cluster, *led(cluster)[1], leader)
    gaps = [after - before for before, after in pairwise(moves)]
    assert 6 <= len(moves) <= 12
    assert gaps[-1] > 30


def test_back_offs_double_and_are_halved_by_quiet() -> None:
    back_offs, now_ms, before = BackOffs(), 0, 0
    gaps: list[int] = []
    assert back_offs.may("a", now_ms)
    while len(gaps) < 8:
        now_ms += 500
        if back_offs.may("a", now_ms):
            gaps.append(now_ms - before)
            before = now_ms
    assert gaps == [1000, 2000, 4000, 8000, 16_000, 32_000, MAX_MS, MAX_MS]
    now_ms += MAX_MS + MAX_MS  # one of quiet after the back-off
    assert back_offs.may("a", now_ms)
    assert not back_offs.may("a", now_ms + MAX_MS - 1)
    now_ms += MAX_MS
    now_ms += 10 * MAX_MS
    assert back_offs.may("a", now_ms)
    assert not back_offs.may("a", now_ms + FIRST_MS - 1)
    assert back_offs.may("a", now_ms + FIRST_MS)
    assert back_offs.may("b", now_ms), "of each by itself"
    back_offs.forget_old(now_ms + FIRST_MS)
    assert not back_offs.may("b", now_ms + 1)


# The controller itself


def test_a_controller_that_does_not_answer_is_replaced_and_its_own_leaderships_move_when_it_does_not_answer_the_next_one() -> None:
    cluster = Cluster(3)
    cluster.settle(5)
    first = active(cluster)
    first.create("t", -1, -1, assignments=[(0, [0, 1, 2])])
    cluster.settle(5)
    for broker_id in (1, 2):
        cluster.brokers[broker_id].runner.take(ControllerSuspected(0, True))
    cluster.settle()
    assert first.controller.role is ControllerRole.FOLLOWING, "it lives, and resigns"
    assert active(cluster).broker_id in (1, 2)
    assert cluster.data(znodes.CONTROLLER_EPOCH) == b"2", "once"
    assert led(cluster)[0] == 0
    suspect(cluster, 0)
    assert led(cluster) == (1, (1, 2), ())


def test_who_suspects_another_broker_than_the_controller_or_the_one_before_replaces_none() -> None:
    cluster = Cluster(3, latency_s=0.05)
    cluster.settle(5)
    cluster.brokers[1].runner.take(ControllerSuspected(2, True))
    cluster.brokers[0].runner.take(ControllerSuspected(0, True))
    cluster.settle(5)
    assert (active(cluster).broker_id, cluster.data(znodes.CONTROLLER_EPOCH)) == (0, b"1")
    cluster.brokers[1].runner.take(ControllerSuspected(0, True))
    cluster.brokers[1].runner.take(ControllerSuspected(0, False))
    cluster.settle(5)
    assert (active(cluster).broker_id, cluster.data(znodes.CONTROLLER_EPOCH)) == (0, b"1"), "it answers again before it was looked at"


def test_two_brokers_that_do_not_reach_each_other_replace_each_other_ever_less_often() -> None:
    cluster = Cluster(2)
    cluster.settle(5)
    for _ in range(600):
        for broker in cluster.brokers.values():
            broker.runner.take(ControllerSuspected(1 - broker.broker_id, True))
        cluster.settle(1.0)
    epoch = int(cluster.data(znodes.CONTROLLER_EPOCH) or b"0")
    assert 10 < epoch < 40
