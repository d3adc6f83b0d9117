"""The controller elects leaders among several brokers: dialogues."""

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import PutState, PutTopicConfig, writes_of
from moldau.cluster.control import Control, ControlReply, UpdateMetadata
from moldau.cluster.znodes import PartitionState, encode_isr_change
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import Create, Done, GetChildren, GetData, Multi, Request, SessionState, SetData, Write
from support.controllers import Broker, Cluster


def cluster_of(brokers: int, *settings: str) -> Cluster:
    cluster = Cluster(brokers, 0.0, *settings)
    cluster.settle(5)
    return cluster


def write(cluster: Cluster, *writes: Write) -> None:
    """As a leader or a tool does: without the controller's epoch."""
    cluster.other.submit(Multi(writes), lambda _outcome: None)


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


def made(cluster: Cluster, name: str, replicas: tuple[int, ...], **configs: str) -> Broker:
    broker = active(cluster)
    broker.create(name, -1, -1, assignments=[(0, replicas)], configs=list(configs.items()))
    cluster.settle(5)
    return broker


def state_of(cluster: Cluster, name: str = "t") -> PartitionState:
    (state,) = cluster.states(name)
    assert state is not None
    return state


def seen(cluster: Cluster, name: str = "t") -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, in-sync and eligible replicas on the tree, which live brokers know too."""
    state = state_of(cluster, name)
    for broker in map(cluster.brokers.__getitem__, map(int, cluster.children(znodes.BROKER_IDS))):
        if broker.session.state is SessionState.CONNECTED:
            info = broker.snapshot.topics[name].partitions[0]
            assert (info.leader, info.leader_epoch, info.isr, info.elr) == (state.leader, state.leader_epoch, state.isr, state.elr)
    return state.leader, state.isr, state.elr


def end(cluster: Cluster, *brokers: int) -> None:
    for each in brokers:
        cluster.brokers[each].session.expire()
    cluster.settle(5)


def back(cluster: Cluster, *brokers: int) -> None:
    for each in brokers:
        cluster.brokers[each].session.resume()
    cluster.settle(5)


def test_a_follower_that_ends_leaves_the_in_sync_set_also_if_it_was_the_controller() -> None:
    cluster = cluster_of(4)
    made(cluster, "t", (1, 2, 0))
    end(cluster, 2)
    assert seen(cluster) == (1, (1, 0), ())
    end(cluster, 0)
    assert active(cluster).broker_id != 0
    assert seen(cluster) == (1, (1,), ())


def test_below_the_minimum_replicas_that_end_stay_eligible_and_one_of_them_leads_alone() -> None:
    cluster = cluster_of(4)
    made(cluster, "t", (1, 2, 3), **{"min.insync.replicas": "2"})
    end(cluster, 3)
    assert seen(cluster) == (1, (1, 2), ())
    end(cluster, 2)
    assert seen(cluster) == (1, (1,), (2,))
    end(cluster, 1)
    assert seen(cluster) == (-1, (1,), (2,))
    back(cluster, 3)
    assert seen(cluster) == (-1, (1,), (2,)), "it may lack committed records"
    back(cluster, 2)
    assert seen(cluster) == (2, (2,), (1,))


def test_an_unclean_leader_is_elected_only_where_the_topic_or_the_broker_allows_it() -> None:
    cluster = cluster_of(3)
    made(cluster, "t", (1, 2))
    made(cluster, "unclean", (1, 2), **{"unclean.leader.election.enable": "true"})
    for name in ("t", "unclean"):
        write(cluster, *writes_of(PutState(name, 0, state_of(cluster, name)._replace(isr=(1,)), 0)))
    end(cluster, 1)
    assert seen(cluster) == (-1, (1,), ())
    assert seen(cluster, "unclean") == (2, (2,), ())
    back(cluster, 1)
    assert seen(cluster)[0] == 1
    allowing = cluster_of(3, "unclean.leader.election.enable=true")
    made(allowing, "t", (1, 2))
    write(allowing, *writes_of(PutState("t", 0, state_of(allowing)._replace(isr=(1,)), 0)))
    end(allowing, 1)
    assert seen(allowing) == (2, (2,), ())


def test_a_leader_that_wrote_the_in_sync_set_meanwhile_is_not_overwritten() -> None:
    cluster = cluster_of(4)
    made(cluster, "t", (1, 2, 3))
    write(cluster, *writes_of(PutState("t", 0, state_of(cluster)._replace(isr=(1, 3)), 0)))
    end(cluster, 1)
    assert seen(cluster) == (3, (3,), ())


@pytest.mark.parametrize("read", [GetChildren, GetData])
def test_the_end_of_a_broker_is_seen_although_reads_of_live_brokers_fail(read: type[GetChildren | GetData]) -> None:
    """The names, or the registrations: no watch is set then, and nothing else would have them read again."""
    cluster = cluster_of(4)
    broker = made(cluster, "t", (1, 2, 3))
    submit = broker.session.submit

    def fail(request: Request, done: Done) -> None:
        if isinstance(request, read) and request.path.startswith(znodes.BROKER_IDS):
            broker.session.fail_next(CoordinationError("no room", retriable=True))
        submit(request, done)

    broker.session.submit = fail  # type: ignore[method-assign]
    end(cluster, 1)
    broker.session.submit = submit  # type: ignore[method-assign]
    cluster.settle(5)
    assert seen(cluster) == (2, (2, 3), ())


@pytest.mark.parametrize("fails", range(3))
def test_an_election_that_the_store_fails_is_repeated(fails: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(3)
    broker = made(cluster, "t", (1, 2))
    submit, left = broker.session.submit, [1 + fails]

    def failing(request: object, done: object) -> None:
        left[0] -= 1
        if not left[0]:
            broker.session.fail_next(CoordinationError("no room", retriable=True))
        submit(request, done)  # type: ignore[arg-type]

    cluster.brokers[1].session.expire()
    monkeypatch.setattr(broker.session, "submit", failing)
    cluster.settle(10)
    assert seen(cluster) == (2, (2,), ())


def test_a_broker_is_never_sent_that_it_leads_in_an_earlier_incarnation() -> None:
    """It may have lost the end of its log, which it would write again in the same epoch."""
    cluster = Cluster(3, 0.2)
    cluster.settle(5)
    active(cluster).create("t", -1, -1, assignments=[(0, (1, 2))])
    cluster.settle(5)
    bounced = cluster.brokers[1]
    bounced.take()
    bounced.session.expire()
    bounced.session.resume()
    cluster.settle(5)
    leads = [line for line in bounced.take() if line.startswith("lead")]
    assert leads
    assert "lead t-0 1 in 0" not in leads


def test_a_state_that_is_malformed_is_named_and_its_partition_waits(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(3)
    made(cluster, "t", (1, 2))
    made(cluster, "u", (1, 2))
    path = znodes.partition_state("t", 0)
    write(cluster, SetData(path, b"{"))
    end(cluster, 1)
    assert any(path in record.getMessage() for record in caplog.records)
    assert seen(cluster, "u") == (2, (2,), ())


def test_a_registration_that_is_malformed_is_named_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(3)
    made(cluster, "t", (1, 2))
    path = znodes.broker(9)
    write(cluster, Create(path, b"{"))
    end(cluster, 1)
    assert any(path in record.getMessage() for record in caplog.records)
    assert (state_of(cluster).leader, state_of(cluster).isr) == (2, (2,))
    end(cluster, 0)
    assert active(cluster).controller.image.live.keys() == {2}, "a controller begins with it too"


def test_what_a_topic_sets_is_read_again_when_an_election_needs_it() -> None:
    cluster = cluster_of(3)
    made(cluster, "t", (1, 2))
    write(cluster, *writes_of(PutTopicConfig("t", {"min.insync.replicas": "2"}, 0)))
    end(cluster, 2)
    assert seen(cluster) == (1, (1,), (2,))


def updates_sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The controller epoch of each UpdateMetadata from now on, with the leader epoch of each partition in it."""
    sent: list[tuple[int, int]] = []
    apply = Broker.apply

    def noted(self: Broker, broker_epoch: int, control: Control) -> ControlReply:
        if isinstance(control, UpdateMetadata):
            sent.extend((control.controller_epoch, info.leader_epoch) for topic in control.topics for info in topic.partitions)
        return apply(self, broker_epoch, control)

    monkeypatch.setattr(Broker, "apply", noted)
    return sent


def test_a_controller_that_finds_a_later_ones_state_resigns_and_sends_it_to_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the later one found before it has written that state may reach brokers afterwards, and their metadata would go back."""
    cluster = cluster_of(3)
    broker = made(cluster, "t", (0, 1, 2))
    state = state_of(cluster)
    own = state.controller_epoch
    later = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=own + 1)
    sent = updates_sent(monkeypatch)
    write(
        cluster,
        *writes_of(PutState("t", 0, later, broker.controller.image.topics["t"].info(0).state_version)),
        Create(f"{znodes.ISR_CHANGES}/isr_change_", encode_isr_change([("t", 0)]), sequential=True),
    )
    cluster.settle(5)
    assert (own, later.leader_epoch) not in sent
    assert (own + 2, later.leader_epoch) in sent, "its node is still there: it continues with an epoch after that of the state"


def test_one_that_finds_a_later_ones_state_while_it_loads_sends_nothing_and_claims_a_later_epoch_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the tree has lost the node of the epoch, in one step."""
    cluster = cluster_of(3)
    broker = made(cluster, "t", (0, 1, 2))
    state = state_of(cluster)
    later = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=state.controller_epoch + 40)
    write(cluster, *writes_of(PutState("t", 0, later, broker.controller.image.topics["t"].info(0).state_version)))
    sent = updates_sent(monkeypatch)
    broker.session.expire()
    cluster.settle(5)
    assert active(cluster) is not broker
    assert {epoch for epoch, _ in sent} == {later.controller_epoch + 1}
    assert cluster.data(znodes.CONTROLLER_EPOCH) == b"%d" % (later.controller_epoch + 1)
