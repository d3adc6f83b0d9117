"""Named defects of others' controllers and of their use of the tree (Z), each as an interleaving that must not hurt here, and does without
its cure.
"""

import asyncio
from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.cluster.znodes import encode_topic
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Delete, Multi, Request, SetData
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.testing.simulation.mutant import Function, Mutant
from simulation.scenarios import Scenario, any_incarnation, check_cure, cures_of, known, nothing, scenario, without
from simulation.small_cluster import CONTROL, CONTROLLER, FOLLOWER, IDS, LEADER, SEGMENT, T0, WAIT_S, Cluster

MACHINE = "moldau.cluster.controller.machine:Controller"
STORE = "moldau.cluster.store"
PARTITION = "moldau.broker.replicas.partition:Partition"
REASSIGNMENTS = "moldau.cluster.controller.reassignments:Reassignments"


def creates(path: str) -> Any:
    """Whether a request creates a node."""
    return lambda request: any(isinstance(each, Create) and each.path == path for each in writes(request))


def sets(path: str) -> Any:
    """Whether a request changes a node."""
    return lambda request: any(isinstance(each, SetData) and each.path == path for each in writes(request))


def writes(request: Request) -> Any:
    return request.writes if isinstance(request, Multi) else (request,)


STATE = znodes.partition_state(*T0)


# Z1, Z2, Z3


@scenario(known("elect who has restarted uncleanly"))
async def test_z1_a_broker_that_bounces_within_its_session_time_out_is_not_in_sync_with_what_it_has_lost(cluster: Cluster) -> None:
    """KAFKA-7235: no watch shows a difference, as the broker is registered before and after."""
    await cluster.write(b"0", b"1", b"2")
    epoch = cluster.state().leader_epoch
    cluster.session(CONTROLLER).late_s = 6.0
    cluster.power_cut(FOLLOWER)
    cluster.start(FOLLOWER)
    await cluster.sleep(5.0)
    assert FOLLOWER in cluster.registered()
    assert (cluster.isr(), cluster.left) == ([*IDS], [])
    cluster.session(CONTROLLER).late_s = 0.0
    await cluster.until(lambda: FOLLOWER in cluster.left)
    assert cluster.state().leader_epoch > epoch
    await cluster.ends_with(b"0", b"1", b"2")


def take_own_epoch_only(real: Function) -> Function:
    from moldau.cluster.control import ControlReply

    def apply(self: Any, broker_epoch: int, control: Any, done: Any) -> None:
        if broker_epoch == self.broker_epoch:
            real(self, broker_epoch, control, done)
        else:
            done(ControlReply(is_stale=True))

    return apply


def take_any_epoch(real: Function) -> Function:
    def apply(self: Any, _broker_epoch: int, control: Any, done: Any) -> None:
        real(self, self.broker_epoch, control, done)

    return apply


APPLIER = "moldau.broker.metadata.applier:MetadataApplier"


@scenario(without("take messages to the own incarnation only", f"{APPLIER}.apply", take_own_epoch_only))
async def test_z2_a_broker_takes_what_is_sent_to_an_incarnation_that_it_does_not_know_yet(cluster: Cluster) -> None:
    """KAFKA-9839: the controller learns of the registration first."""
    before = cluster.broker(FOLLOWER).applier.broker_epoch
    cluster.when_written(creates(znodes.broker(FOLLOWER)), lambda: setattr(cluster.session(FOLLOWER), "late_s", 2.0))
    cluster.hold(messages := cluster.requests(*CONTROL, to=FOLLOWER))
    cluster.session(FOLLOWER).expire()
    await cluster.until(lambda: FOLLOWER in cluster.left and FOLLOWER in cluster.registered())
    await cluster.until(lambda: cluster.network.held > 0)
    cluster.release(messages)
    await cluster.sleep(1.0)
    assert cluster.broker(FOLLOWER).applier.broker_epoch == before
    cluster.session(FOLLOWER).late_s = 0.0
    await cluster.in_sync(*IDS)
    assert cluster.broker(FOLLOWER).applier.broker_epoch > before


def fail_where_taken(_real: Function) -> Function:
    from moldau.model.errors import CoordinationError

    def taken(self: Any, _session_id: int, _found: Any) -> None:
        self._failed(CoordinationError("there is a registration", retriable=False))

    return taken


@scenario(
    without(
        "do not wait for the registration of the last session", "moldau.broker.metadata.registration:Registration._taken", fail_where_taken
    )
)
async def test_z3_a_process_that_starts_while_the_session_of_the_last_one_lasts_registers_after_it(cluster: Cluster) -> None:
    """KAFKA-1387: it neither fails, nor removes a registration that may be another's."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER)
    node = cluster.sim.tree.get(znodes.broker(FOLLOWER))
    assert node is not None
    cluster.start(FOLLOWER)
    await cluster.sleep(1.0)
    assert cluster.sim.tree.get(znodes.broker(FOLLOWER)) == node
    await cluster.until(lambda: FOLLOWER in cluster.left)
    await cluster.ends_with(b"0")


# Z4, Z5, Z6


def distrust_witness(_real: Function) -> Function:
    return lambda *_positional: False


def follow_oneself(real: Function) -> Function:
    from moldau.cluster.queries import ControllerNodes

    def read(self: Any, found: Any) -> None:
        real(self, found._replace(owner=0) if isinstance(found, ControllerNodes) else found)

    return read


@scenario(
    (
        without("do not look whether a write whose answer was lost has happened", f"{STORE}:shows", distrust_witness),
        without("follow the broker that the node names", f"{MACHINE}._controller_read", follow_oneself),
    )
)
async def test_z4_a_broker_whose_claim_succeeded_without_an_answer_is_controller(cluster: Cluster) -> None:
    """KAFKA-13407: the node names it, and it acts."""

    def lose_answer() -> None:
        cluster.session(cluster.controller()).suspend()

    cluster.when_written(creates(znodes.CONTROLLER), lose_answer)
    cluster.kill(CONTROLLER)
    await cluster.until(lambda: cluster.controller() in (LEADER, FOLLOWER))
    await cluster.sleep(1.0)
    await cluster.create("u", (LEADER, FOLLOWER))
    cluster.start(CONTROLLER)
    await cluster.in_sync(*IDS)


@scenario(known("write without a check of the controller's epoch"))
async def test_z5_a_controller_that_has_not_heard_of_its_successor_writes_nothing(cluster: Cluster) -> None:
    """KAFKA-6082: its session lives, and what tells it of the other is late."""
    cluster.session(CONTROLLER).late_s = 3.0
    cluster.sim.tree.nodes.session().submit(Delete(znodes.CONTROLLER), lambda _: None)
    await cluster.until(lambda: cluster.controller() not in (0, CONTROLLER))
    (answer,) = (await cluster.ask(CONTROLLER, ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("u", 1, 3)], 60_000))).topics
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert cluster.sim.tree.children(znodes.TOPICS) == ["t"]
    cluster.session(CONTROLLER).late_s = 0.0
    await cluster.write(b"0")


def forget_who_asked(real: Function) -> Function:
    def resign(self: Any, **named: Any) -> None:
        self._outbox.asked.clear()
        real(self, **named)

    return resign


@scenario(without("forget who has asked when the session ends", f"{MACHINE}._resign", forget_who_asked))
async def test_z6_a_request_that_is_under_way_when_the_session_expires_is_answered_and_carried_out_as_a_whole(cluster: Cluster) -> None:
    """KAFKA-6517: of a topic that is written in part the next controller writes the rest."""
    cluster.when_written(creates(znodes.topic("u")), cluster.session(CONTROLLER).expire)
    request = CreateTopicsRequest([CreatableTopic("u", 1, 3)], 60_000)
    (answer,) = (await asyncio.wait_for(cluster.ask(CONTROLLER, ApiKey.CREATE_TOPICS, request), 5.0)).topics
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    await cluster.in_sync(*IDS, topic="u")
    await cluster.until(lambda: cluster.registered() == [*IDS])
    await cluster.in_sync(*IDS)


# Z7, Z8, Z9


@scenario(known("compare ids of brokers, not registrations"))
async def test_z7_of_changes_that_a_controller_learns_of_at_once_it_misses_none(cluster: Cluster) -> None:
    """KAFKA-5502: a watch fires once, and what it says is read when it is looked at."""
    epoch = cluster.state().leader_epoch
    cluster.session(CONTROLLER).late_s = 3.0
    for broker_id in (FOLLOWER, LEADER):
        cluster.session(broker_id).expire()
        await cluster.until(lambda: len(cluster.registered()) == 2)
        await cluster.until(lambda: len(cluster.registered()) == 3)
    assert cluster.state().leader_epoch == epoch
    cluster.session(CONTROLLER).late_s = 0.0
    await cluster.until(lambda: cluster.state().leader_epoch > epoch)
    await cluster.in_sync(*IDS)
    await cluster.write(b"0")
    await cluster.ends_with(b"0")


@scenario(known("keep a change of the in-sync set open after a conflict"))
async def test_z8_a_leader_that_the_controller_cannot_reach_finds_in_the_tree_that_it_leads_no_more(cluster: Cluster) -> None:
    """librdkafka#1575: it reads the state that its own change conflicts with, and gives up."""
    await cluster.write(b"0")
    cluster.hold(cluster.requests(*CONTROL, to=LEADER))
    await cluster.elect(CONTROLLER)
    await cluster.until(lambda: cluster.machine(FOLLOWER).leader_id == CONTROLLER)
    assert cluster.leads(LEADER)
    assert await cluster.append(LEADER, b"doomed") is ErrorCode.NONE
    await cluster.until(lambda: not cluster.leads(LEADER))
    assert await cluster.append(LEADER, b"refused") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.broker(LEADER).metadata.topics["t"].partitions[0].leader == CONTROLLER, "so clients find it there"
    cluster.release()
    await cluster.ends_with(b"0")


def keep_epoch(real: Function) -> Function:
    def next_state(self: Any, topic: Any, index: int) -> Any:
        return real(self, topic, index)._replace(leader_epoch=topic.info(index).leader_epoch)

    return next_state


def compare_epochs(real: Function) -> Function:
    def check_newer(self: Any, event: Any) -> None:
        from moldau.broker.replicas.partition_errors import stale

        if event.epoch == self.leader_epoch:
            raise stale(self, event)
        real(self, event)

    return check_newer


@scenario(
    (
        without("move replicas within an epoch", f"{REASSIGNMENTS}._next_state", keep_epoch),
        without("take no other state of the same epoch", f"{PARTITION}._check_newer", compare_epochs),
    )
)
async def test_z9_a_reassignment_that_is_cancelled_is_known_to_all_and_leaves_no_replica(cluster: Cluster) -> None:
    """KAFKA-13972, KAFKA-9539: the topic is deleted and made again with a replica where the one that was cancelled was."""
    await cluster.create("u", (LEADER, CONTROLLER))
    moved = TopicPartition("u", 0)
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER))
    await cluster.admin.move_partition(moved, [LEADER, FOLLOWER])
    await cluster.until(lambda: moved in cluster.broker(FOLLOWER).replicas.hosted)
    await cluster.admin.move_partition(moved, None)
    await cluster.until(lambda: moved not in cluster.broker(FOLLOWER).replicas.hosted)
    cluster.release()
    await cluster.until(lambda: cluster.hosted(LEADER, "u").machine.replicas == (LEADER, CONTROLLER))
    await cluster.write(b"old", topic="u")
    await cluster.delete("u")
    await cluster.create("u", (FOLLOWER, LEADER))
    await cluster.in_sync(FOLLOWER, LEADER, topic="u")
    assert cluster.values(FOLLOWER, "u") == []


# Z10, Z11


@scenario(
    without("do not complete topics of the last controller", "moldau.cluster.controller.topics:TopicChanges.complete", nothing),
    without("do not go on with deletions", "moldau.cluster.controller.deletions:TopicDeletions.resume", nothing),
    without("do not go on with reassignments", f"{REASSIGNMENTS}.check", nothing),
)
async def test_z10_what_a_controller_has_begun_the_next_one_completes(cluster: Cluster) -> None:
    """A tool has made a topic, another one is being deleted, and a third one moved."""
    await cluster.create("deleted", (LEADER, FOLLOWER))
    await cluster.create("moved", (LEADER, CONTROLLER))
    moved = TopicPartition("moved", 0)
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER))
    await cluster.admin.move_partition(moved, [LEADER, FOLLOWER])
    cluster.hold(cluster.requests(ApiKey.STOP_REPLICA, to=FOLLOWER))
    deleting = asyncio.ensure_future(cluster.delete("deleted"))
    await cluster.until(lambda: "deleted" in cluster.sim.tree.children(znodes.DELETE_TOPICS))
    tool = cluster.sim.tree.nodes.session()
    tool.submit(Create(znodes.topic("made"), encode_topic(bytes(range(16)), [[LEADER, FOLLOWER]])), lambda _: None)
    cluster.kill(CONTROLLER)
    cluster.release()
    await cluster.in_sync(LEADER, FOLLOWER, topic="made")
    await cluster.until(lambda: "deleted" not in cluster.sim.tree.children(znodes.TOPICS))
    await cluster.until(lambda: cluster.partition("moved").replicas == (LEADER, FOLLOWER) and not cluster.partition("moved").is_moving)
    deleting.cancel()
    cluster.start(CONTROLLER)
    await cluster.in_sync(*IDS)


def elect_nothing_first(_real: Function) -> Function:
    return lambda _self, _floors, _per_write, _failed, then: then()


@scenario(without("do not elect before anything is sent", "moldau.cluster.controller.elections:Elections.run_first", elect_nothing_first))
async def test_z11_a_controller_that_led_and_ends_leads_no_more_under_the_next_one(cluster: Cluster) -> None:
    """KAFKA-3096: nothing notifies the next one of its end."""
    cluster.sim.tree.linger_s = 0.01
    await cluster.write(b"0")
    await cluster.elect(CONTROLLER)
    cluster.kill(CONTROLLER)
    await cluster.in_sync(LEADER, FOLLOWER)
    assert cluster.state().leader in (LEADER, FOLLOWER)
    await cluster.write(b"1")
    cluster.start(CONTROLLER)
    await cluster.ends_with(b"0", b"1")


# Z12, Z13


@scenario(without("open logs when roles are taken", "moldau.log.manager:LogManager.start", nothing))
async def test_z12_a_broker_registers_when_its_logs_are_open(cluster: Cluster) -> None:
    """KAFKA-4443: no other way can it be named leader before it can lead."""
    await cluster.write(b"0")
    cluster.kill(LEADER)
    await cluster.led_by(CONTROLLER)
    opened: list[bool] = []
    cluster.when_written(creates(znodes.broker(LEADER)), lambda: opened.append(cluster.broker(LEADER).logs.get(T0) is not None))
    cluster.start(LEADER)
    await cluster.until(lambda: bool(opened))
    assert opened == [True]
    await cluster.ends_with(b"0")


def serve_what_was_served(real: Function) -> Function:
    def put(self: Any, *positional: Any) -> None:
        served = self._served
        real(self, *positional)
        self._served = served

    return put


@pytest.mark.system
@scenario(without("send the metadata of before a write", "moldau.cluster.controller.image:TopicImage.put", serve_what_was_served))
async def test_z13_the_epochs_of_metadata_are_those_that_were_written(cluster: Cluster) -> None:
    """KAFKA-9212: an election whose write was refused first, since the leader had changed the state meanwhile."""
    await cluster.write(b"0")
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER))
    assert await cluster.append(LEADER, b"1") is ErrorCode.NONE
    cluster.session(CONTROLLER).late_s = 2.0
    await cluster.in_sync(LEADER, CONTROLLER)
    cluster.kill(LEADER)
    cluster.session(CONTROLLER).late_s = 0.0
    await cluster.led_by(CONTROLLER)
    cluster.release()
    await cluster.in_sync(CONTROLLER, FOLLOWER)
    cluster.start(LEADER)
    await cluster.in_sync(*IDS)
    await cluster.until(lambda: {cluster.known_epoch(broker_id) for broker_id in IDS} == {cluster.state().leader_epoch})
    await cluster.write(b"2")
    await cluster.ends_with(b"0", b"1", b"2")


# Z14, Z15, Z16


@scenario(
    without(
        "do not look at sets that leaders have changed", "moldau.cluster.controller.cluster_changes:ClusterChanges._isr_changed", nothing
    )
)
async def test_z14_a_replica_that_shuts_down_and_joins_again_by_a_late_fetch_is_removed_again(cluster: Cluster) -> None:
    """KAFKA-14140: it is registered still, and its last fetch, of the new epoch, arrives when it has left."""
    await cluster.write(b"0")
    cluster.hold(fetches := cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER))
    await cluster.until(lambda: cluster.network.held > 0)
    cluster.hold(cluster.responses(ApiKey.CONTROLLED_SHUTDOWN, to=FOLLOWER))
    cluster.stop_later(FOLLOWER)
    await cluster.until(lambda: FOLLOWER in cluster.left)
    await cluster.until(lambda: cluster.machine(LEADER).leader_epoch == cluster.state().leader_epoch)
    cluster.release(fetches)
    await cluster.sleep(2.0)
    assert FOLLOWER in cluster.registered()
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.until(lambda: cluster.host(FOLLOWER).process is None)
    cluster.start(FOLLOWER)
    await cluster.ends_with(b"0")


def forget_when_the_term_began(real: Function) -> Function:
    def become_leader(self: Any, event: Any) -> Any:
        effects = real(self, event)
        self.term_s = -1e9
        return effects

    return become_leader


@scenario(without("take followers of a new leader for late ones", f"{PARTITION}._become_leader", forget_when_the_term_began))
async def test_z15_a_new_leader_gives_its_followers_the_time_to_fetch(cluster: Cluster) -> None:
    """fluss#3698: it has looked at its in-sync set before they have fetched from it."""
    await cluster.write(b"0")
    await cluster.sleep(2.0)
    cluster.hold(cluster.requests(ApiKey.FETCH, to=CONTROLLER))
    await cluster.elect(CONTROLLER)
    await cluster.led_by(CONTROLLER)
    assert await cluster.append(CONTROLLER, b"1") is ErrorCode.NONE
    await cluster.sleep(0.8)
    assert cluster.left == []
    cluster.release()
    await cluster.ends_with(b"0", b"1")
    assert cluster.left == []


def never_look(real: Function) -> Function:
    from moldau.ports.coordination import ConnectionLostError

    def answered(self: Any, outcome: Any) -> None:
        if not isinstance(outcome, ConnectionLostError):
            real(self, outcome)

    return answered


@scenario(without("do not look what has become of a write", f"{STORE}:_PendingWrite._answered", never_look))
async def test_z16_a_change_of_the_in_sync_set_whose_answer_is_lost_ends(cluster: Cluster) -> None:
    """fluss#2146, KAFKA-12686: the next change can be made."""
    await cluster.write(b"0")
    cluster.hold(cluster.responses(ApiKey.FETCH, by=LEADER, to=FOLLOWER))
    delivery = cluster.write_later(b"1")
    cluster.when_written(sets(STATE), cluster.session(LEADER).suspend)
    await asyncio.wait_for(delivery, WAIT_S)
    assert cluster.machine(LEADER).proposed_isr is None
    assert sorted(cluster.machine(LEADER).isr) == cluster.isr() == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.ends_with(b"0", b"1")


# Z17, Z18


def heed_closed_logs(real: Function) -> Function:
    def sync_failed(self: Any, partition: Any, error: Any) -> None:
        partition.is_open = True
        real(self, partition, error)

    return sync_failed


@scenario(without("heed errors of logs that are closed", "moldau.broker.replicas.manager:ReplicaManager.sync_failed", heed_closed_logs))
async def test_z17_an_error_of_a_replica_that_was_removed_does_not_concern_the_one_made_since(cluster: Cluster) -> None:
    """fluss#644: a sync of the log that broker 3 had fails when it has another one in the same place."""
    await cluster.write(b"0")
    await cluster.admin.configure_topic("t", {"flush.messages": 1})
    await cluster.until(lambda: cluster.log(FOLLOWER).config.flush_messages == 1)
    process, late = cluster.host(FOLLOWER).process, list[Any]()
    assert process is not None
    process.background.run = lambda *job: late.append(job)  # type: ignore[method-assign]
    await cluster.write(b"1")
    await cluster.until(lambda: bool(late))
    del process.background.run
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER))
    await cluster.move(LEADER, CONTROLLER)
    await cluster.admin.move_partition(T0, [LEADER, CONTROLLER, FOLLOWER])
    await cluster.until(lambda: cluster.end(FOLLOWER) == 0)
    failed: list[str] = []

    def fail(operation: str, path: str) -> bool:
        if operation != "sync" or path != SEGMENT or failed:
            return False
        failed.append(path)
        return True

    process.host.disk.fail = fail
    for job in late:
        process.background.run(*job)
    await cluster.until(lambda: bool(failed))
    await cluster.sleep(1.0)
    assert cluster.end(FOLLOWER) == 0
    cluster.release()
    await cluster.ends_with(b"0", b"1")


@scenario(without("add whichever incarnation is registered", "moldau.broker.replicas.isr_changes:wanted_isr", any_incarnation))
async def test_z18_the_incarnation_that_has_fetched_is_the_one_that_joins(cluster: Cluster) -> None:
    """KAFKA-15221: it ends, and has lost everything, between its fetch and the look at the tree."""
    await cluster.write(b"0")
    cluster.sim.tree.linger_s = 0.01
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    cluster.start(FOLLOWER)
    await cluster.until(lambda: FOLLOWER in cluster.registered())
    cluster.session(LEADER).hold()
    await cluster.until(lambda: cluster.end(FOLLOWER) == 1 and FOLLOWER in cluster.machine(LEADER).followers)
    epoch = cluster.machine(LEADER).followers[FOLLOWER].broker_epoch
    cluster.power_cut(FOLLOWER)
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER))
    cluster.start(FOLLOWER)
    await cluster.until(lambda: cluster.end(FOLLOWER) == 0)
    assert cluster.machine(LEADER).followers[FOLLOWER].broker_epoch == epoch
    cluster.lossy.clear()
    cluster.session(LEADER).release()
    await cluster.sleep(2.0)
    assert cluster.isr() == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.ends_with(b"0")


# Z19, Z20, Z21


@scenario(known("elect outside the in-sync set"))
async def test_z19_a_preferred_replica_is_elected_when_it_is_in_sync(cluster: Cluster) -> None:
    """KAFKA-9866."""
    await cluster.write(b"0")
    cluster.kill(LEADER)
    await cluster.led_by(CONTROLLER)
    await cluster.write(b"1")
    cluster.hold(cluster.requests(ApiKey.FETCH, by=LEADER))
    cluster.start(LEADER)
    await cluster.until(lambda: cluster.end(LEADER) == 1)
    await cluster.admin.elect_preferred("t", [0])
    assert cluster.state().leader == CONTROLLER
    cluster.release()
    await cluster.in_sync(*IDS)
    await cluster.sleep(1.0)  # the controller hears of it
    await cluster.admin.elect_preferred("t", [0])
    await cluster.led_by(LEADER)
    await cluster.ends_with(b"0", b"1")


def hand_over_for_ever(real: Function) -> Function:
    def init(self: Any, *positional: Any, **named: Any) -> None:
        real(self, *positional, **{**named, "timeout_s": 1e6})

    return init


@scenario(
    without("hand over until that has succeeded", "moldau.broker.metadata.hand_over:HandOver.__init__", hand_over_for_ever),
    shutdown_timeout_ms=8000,
)
async def test_z20_a_broker_that_reaches_neither_the_tree_nor_the_controller_stops(cluster: Cluster) -> None:
    """KAFKA-9189."""
    await cluster.write(b"0")
    cluster.isolate(FOLLOWER)
    cluster.sim.tree.away_s = 1e6
    cluster.session(FOLLOWER).suspend()
    await cluster.stop(FOLLOWER)
    cluster.sim.tree.away_s = 0.1
    cluster.mend()
    cluster.start(FOLLOWER)
    await cluster.ends_with(b"0")


def remove_nothing(_real: Function) -> Function:
    def remove_missed(*_: Any) -> Any:
        yield from ()

    return remove_missed


@scenario(
    (
        without("keep replicas that were moved away meanwhile", f"{APPLIER}._remove_missed", remove_nothing),
        without("take the folder of another topic", "moldau.log.lifecycle:Lifecycle.choose_folder", nothing),
    )
)
async def test_z21_a_topic_that_is_made_again_has_nothing_of_the_one_before_it(cluster: Cluster) -> None:
    """KAFKA-12835: broker 3 has the old log; its replica was moved away, and the topic deleted, while it was down."""
    await cluster.write(b"old")
    cluster.kill(FOLLOWER)
    await cluster.in_sync(LEADER, CONTROLLER)
    await cluster.move(LEADER, CONTROLLER)
    await cluster.delete("t")
    await cluster.create("t", (LEADER, CONTROLLER))
    assert await cluster.append(LEADER, b"new", acks=-1) is ErrorCode.NONE
    cluster.start(FOLLOWER)
    await cluster.until(lambda: len(cluster.broker(CONTROLLER).metadata.brokers) == 3)
    await cluster.move(LEADER, CONTROLLER, FOLLOWER)
    await cluster.ends_with(b"new")


# Z22, Z23


def complete_at_once(_real: Function) -> Function:
    from moldau.cluster.controller.reassignments import move_of

    return lambda self, topic, index: self._state_among(topic, index, move_of(topic, index).target)


@scenario(without("complete a reassignment at the first target", f"{REASSIGNMENTS}._state_of_target", complete_at_once))
async def test_z22_a_reassignment_is_complete_when_all_of_its_targets_are_in_sync(cluster: Cluster) -> None:
    """KAFKA-9672: until then the in-sync set has replicas that go."""
    await cluster.create("u", (LEADER, CONTROLLER))
    await cluster.write(b"0", topic="u")
    cluster.hold(cluster.requests(ApiKey.FETCH, by=FOLLOWER, to=LEADER))
    epoch = cluster.state("u").leader_epoch
    await cluster.admin.move_partition(TopicPartition("u", 0), [LEADER, FOLLOWER])
    await cluster.sleep(2.0)
    assert cluster.partition("u").is_moving
    assert sorted(cluster.state("u").isr) == [CONTROLLER, LEADER]
    cluster.release()
    await cluster.in_sync(LEADER, FOLLOWER, topic="u")
    await cluster.until(lambda: cluster.partition("u").replicas == (LEADER, FOLLOWER) and not cluster.partition("u").is_moving)
    assert cluster.state("u").leader_epoch > epoch
    assert cluster.values(FOLLOWER, "u") == [b"0"]


@scenario(
    without("leave it to the next election", "moldau.cluster.controller.notifications:Notifications._entities_read", nothing),
    checks=False,
    min_insync_replicas=1,
)
async def test_z23_unclean_elections_that_are_enabled_live_elect_where_none_leads_already(cluster: Cluster) -> None:
    """KAFKA-6526."""
    await cluster.write(b"0")
    cluster.kill(FOLLOWER, CONTROLLER)
    await cluster.in_sync(LEADER)
    await cluster.write(b"1")
    cluster.kill(LEADER)
    cluster.start(FOLLOWER, CONTROLLER)
    await cluster.until(lambda: cluster.registered() == [CONTROLLER, FOLLOWER])
    await cluster.sleep(2.0)
    assert cluster.state().leader == -1
    await cluster.admin.configure_topic("t", {"unclean.leader.election.enable": "true"})
    await cluster.until(lambda: cluster.state().leader in (CONTROLLER, FOLLOWER))
    cluster.start(LEADER)
    await cluster.ends_with(b"0")


@pytest.mark.system
@pytest.mark.parametrize(("test", "cure"), cures_of(globals()))
def test_a_scenario_fails_without_its_cure(test: Scenario, cure: tuple[Mutant, ...]) -> None:
    check_cure(test, cure)
