"""A broker fences messages of earlier controllers; deletions and malformed configurations are no hindrance to other topics."""

from pathlib import Path

import pytest

from moldau.broker.configs import Change, IncrementalChange, Resource, ResourceType
from moldau.broker.metadata.applier import LOOK_AGAIN_S, LOOKS_MAX, READ_AGAIN_S
from moldau.cluster import znodes
from moldau.cluster.control import Control, ControlReply, LeaderAndIsr, LedPartition, StoppedTopic, StopReplica
from moldau.cluster.znodes import encode_config, encode_config_change
from moldau.log.partition_metadata import write_topic_id
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps, drain
from moldau.ports.background import InlineBackground
from moldau.ports.coordination import Create, Done, GetChildren, GetData, Multi, Request
from support.broker_world import BrokerWorld
from support.trees import AskedTree

EPOCH = 5
"""The epoch of the controller that is known when a test begins."""
LED_IN = 7
T = TopicPartition("t", 0)


@pytest.fixture
def world() -> BrokerWorld:
    world = BrokerWorld()
    world.create_topic("t", retention_ms=111)
    world.create_topic("other")
    assert send(world, StopReplica(EPOCH, ())) == ControlReply()
    return world


def send(world: BrokerWorld, control: Control, broker_epoch_after: int = 0) -> ControlReply:
    """A message for this broker's incarnation, or for one that is so much later; the reply."""
    replies: list[ControlReply] = []
    world.broker.applier.apply(world.broker.applier.broker_epoch + broker_epoch_after, control, replies.append)
    world.clock.settle()
    (reply,) = replies
    return reply


def lead(world: BrokerWorld, controller_epoch: int) -> LeaderAndIsr:
    topic = world.broker.metadata.topics["t"]
    info = topic.partitions[0]._replace(leader_epoch=LED_IN)
    return LeaderAndIsr(controller_epoch, (LedPartition("t", topic.topic_id, info, False),))


def stop(world: BrokerWorld, controller_epoch: int) -> StopReplica:
    return StopReplica(controller_epoch, (StoppedTopic("t", world.broker.metadata.topics["t"].topic_id, 1),))


# Fencing


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch_after", "is_applied"),
    [
        pytest.param(EPOCH - 1, 0, False, id="an earlier controller"),
        pytest.param(EPOCH - 1, 1, False, id="an earlier controller to a later incarnation"),
        pytest.param(EPOCH, -1, False, id="an earlier incarnation"),
        pytest.param(EPOCH + 1, -1, False, id="a new controller to an earlier incarnation"),
        pytest.param(EPOCH, 0, True, id="the controller that is known"),
        pytest.param(EPOCH + 1, 0, True, id="a new controller"),
        pytest.param(EPOCH, 1, True, id="an incarnation that this broker does not know of yet"),
    ],
)
def test_only_the_last_controller_and_for_this_incarnation_gives_roles_and_deletes(
    world: BrokerWorld, controller_epoch: int, broker_epoch_after: int, is_applied: bool
) -> None:
    reply = send(world, lead(world, controller_epoch), broker_epoch_after)
    assert (reply.is_stale, world.partition("t").machine.leader_epoch) == (not is_applied, LED_IN if is_applied else 0)
    reply = send(world, stop(world, controller_epoch), broker_epoch_after)
    assert (reply.is_stale, world.broker.partitions.get(T) is None) == (not is_applied, is_applied)
    assert world.partition("other")


def test_a_new_controller_fences_the_one_before_and_a_message_that_is_refused_fences_nobody(world: BrokerWorld) -> None:
    assert send(world, StopReplica(EPOCH + 4, ()), -1).is_stale
    assert not send(world, StopReplica(EPOCH, ())).is_stale
    assert not send(world, StopReplica(EPOCH + 1, ())).is_stale
    assert send(world, lead(world, EPOCH)).is_stale
    assert send(world, stop(world, EPOCH)).is_stale
    assert world.partition("t").machine.leader_epoch == 0


def test_a_message_that_comes_twice_changes_nothing_the_second_time(world: BrokerWorld) -> None:
    client = world.connect()
    assert send(world, lead(world, EPOCH)) == ControlReply()
    client.produce("t", b"kept")
    assert send(world, lead(world, EPOCH)) == ControlReply()
    assert client.values("t") == [b"kept"]
    assert [send(world, stop(world, EPOCH)) for _ in range(2)] == [ControlReply(), ControlReply()]


def test_a_broker_that_stops_leads_nothing_any_more(world: BrokerWorld) -> None:
    """Its session may end meanwhile, and it is elected again; the logs are being closed."""
    message, replies = lead(world, EPOCH + 1), list[ControlReply]()
    closing = world.broker.stop(InlineBackground(), lambda: False)
    world.broker.applier.apply(world.broker.applier.broker_epoch, message, replies.append)
    world.clock.settle()
    hosted = world.broker.replicas.hosted[T]
    assert (replies, hosted.is_led, hosted.machine.leader_epoch) == ([], False, 0)
    drain(closing)


# Roles


def test_of_two_folders_the_topics_own_says_above_which_epoch_it_is_led(tmp_path: Path) -> None:
    """Batches of a lower epoch than those before would be cut after a crash."""
    world = BrokerWorld(store=str(tmp_path / "store"))
    world.create_topic("t")
    assert send(world, lead(world, EPOCH)) == ControlReply()
    assert world.connect().produce("t", b"in epoch 7").base_offset == 0
    world.stop()
    world.disk.make_directory("/before")
    world.disk.sync_directory("/")
    world.disk.write_atomically("/before/meta.properties", world.disk.read("/data/meta.properties"))
    world.disk.make_directory("/before/t-0")
    world.disk.sync_directory("/before")
    write_topic_id(world.disk, "/before/t-0", bytes(range(16)))
    world.directories.insert(0, "/before")
    world.restart(crash=True)
    assert world.partition("t").machine.leader_epoch == LED_IN + 1
    client = world.connect()
    assert client.produce("t", b"in epoch 8").base_offset == 1
    world.restart(crash=True)
    assert world.partition("t").machine.leader_epoch == LED_IN + 2
    assert [name.endswith("-stray") for name in world.disk.list("/before") if name.startswith("t-0")] == [True]


# Deletions


def test_what_a_deletion_brings_to_disk_keeps_other_changes_from_nothing(world: BrokerWorld) -> None:
    """A disk may take seconds for it."""
    broker = world.broker
    other = broker.metadata.topics["other"]
    world.background.immediate = False
    replies: list[str] = []
    broker.applier.apply(broker.applier.broker_epoch, stop(world, EPOCH), lambda _reply: replies.append("deleted"))
    world.clock.settle()
    assert broker.partitions.get(T) is None
    assert (replies, len(world.background.jobs)) == ([], 1)
    led = LedPartition("other", other.topic_id, other.partitions[0]._replace(leader_epoch=LED_IN), False)
    broker.applier.apply(broker.applier.broker_epoch, LeaderAndIsr(EPOCH, (led,)), lambda _reply: replies.append("led"))
    world.clock.settle()
    assert (replies, world.partition("other").machine.leader_epoch) == (["led"], LED_IN)
    world.background.run_all()
    world.clock.settle()
    assert replies == ["led", "deleted"]


# Configurations


@pytest.mark.parametrize("is_made", [True, False])
def test_a_topic_that_a_server_of_the_tree_does_not_have_yet_is_not_opened_with_defaults(world: BrokerWorld, *, is_made: bool) -> None:
    """The server lags behind the one that the controller has written to; or the topic is deleted already, and holds others up not for long.
    No notification would follow: a compacted topic would lose records by time, on this broker alone.
    """
    info = world.broker.metadata.topics["t"].partitions[0]
    replies: list[ControlReply] = []
    control = LeaderAndIsr(EPOCH, (LedPartition("new", b"n" * 16, info, True),))
    world.broker.applier.apply(world.broker.applier.broker_epoch, control, replies.append)
    world.clock.advance(1.0)
    assert (replies, TopicPartition("new", 0) in world.broker.replicas.hosted) == ([], False)
    if is_made:
        writes = Create(znodes.topic_config("new"), encode_config({"cleanup.policy": "compact"})), Create(znodes.topic("new"))
        world.store.multi(writes)
    world.clock.advance(0.2 if is_made else LOOKS_MAX * LOOK_AGAIN_S)
    assert replies == [ControlReply()]
    assert world.partition("new").log.config.compacts is is_made


def test_of_many_topics_only_the_one_whose_configuration_is_malformed_has_defaults(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("bad", "good")
    for name in names:
        world.store.create(znodes.topic(name), b"")
    world.store.create(znodes.topic_config("good"), encode_config({"retention.ms": "5"}))
    world.store.create(znodes.topic_config("bad"), b"{")
    info = world.broker.metadata.topics["t"].partitions[0]
    assert (
        send(world, LeaderAndIsr(EPOCH, tuple(LedPartition(name, name.encode().ljust(16), info, True) for name in names))) == ControlReply()
    )
    assert world.partition("good").log.config.retention_ms == 5
    assert world.partition("bad").log.config == world.partition("other").log.config
    (record,) = caplog.records
    assert "topic=bad" in record.message
    assert znodes.topic_config("bad") in record.message


def test_a_configuration_that_becomes_malformed_stays_as_it_was_and_others_are_changed(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def notify(data: bytes) -> None:
        world.store.create(znodes.config_change("config_change_"), data, sequential=True)

    def change(name: str, data: bytes) -> None:
        path = znodes.topic_config(name)
        world.store.set(path, data)
        notify(encode_config_change(f"topics/{name}"))
        world.clock.settle()

    change("t", b"garbage")
    notify(b"garbage")
    change("other", encode_config({"retention.ms": "222"}))
    assert [world.partition(name).log.config.retention_ms for name in ("t", "other")] == [111, 222]
    malformed, skipped = (record.message for record in caplog.records)
    assert "entity=topics/t" in malformed
    assert znodes.topic_config("t") in malformed
    assert znodes.CONFIG_CHANGES in skipped
    change("t", encode_config({"retention.ms": "333"}))
    assert world.partition("t").log.config.retention_ms == 333


def test_a_value_in_the_tree_that_is_not_allowed_is_named_with_its_node_and_the_broker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = BrokerWorld(store=str(tmp_path / "metadata.db"))
    name, path = "max.connections.per.ip.overrides", znodes.broker_config(None)
    world.configure(None, log_retention_ms=5)
    world.store.set(path, encode_config({name: "nonsense", "log.retention.ms": "6"}))
    world.restart()
    assert world.broker.config.int("log.retention.ms") == 6
    assert f"stored configuration not taken: node={path} name={name} reason={name}: 'nonsense' is not allowed" in caplog.text


@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "at a start"])
def test_a_value_of_a_topic_in_the_tree_that_is_not_allowed_is_named_with_its_node_and_the_others_apply(
    tmp_path: Path, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = BrokerWorld(store=str(tmp_path / "metadata.db"))
    world.create_topic("t", retention_ms=111)
    path = znodes.topic_config("t")
    world.store.set(path, encode_config({"retention.ms": "soon", "retention.bytes": "222"}))
    if restarts:
        world.restart()
    else:
        world.store.create(znodes.config_change("config_change_"), encode_config_change("topics/t"), sequential=True)
        world.clock.settle()
    config = world.partition("t").log.config
    assert (config.retention_ms, config.retention_bytes) == (7 * 24 * 3_600_000, 222)
    (record,) = caplog.records
    assert record.message.startswith(f"stored configuration not taken: node={path} name=retention.ms reason=retention.ms: 'soon' is not")


def test_a_bug_with_one_change_keeps_no_other_from_being_applied_and_nobody_waiting(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def bug() -> None:
        raise RuntimeError("a bug")

    world.broker.on_reconfigured.append(bug)
    world.configure(None, log_retention_ms=5)
    (record,) = caplog.records
    assert "entity=brokers/<default>" in record.message
    world.broker.on_reconfigured.remove(bug)
    world.configure("t", retention_ms=222)
    assert world.partition("t").log.config.retention_ms == 222


class FailingOnce(AskedTree):
    """Fails the first read of a node, or of its children, after the next write."""

    fails: str | None = None
    has_written = False

    def submit(self, request: Request, done: Done) -> None:
        self.has_written = self.has_written or (self.fails is not None and isinstance(request, Multi))
        if isinstance(request, GetChildren | GetData) and self.has_written and request.path == self.fails:
            self.fails = None
            done(CoordinationError("too many requests", retriable=True))
        else:
            super().submit(request, done)


@pytest.mark.parametrize("path", [znodes.CONFIG_CHANGES, znodes.topic_config("t")])
def test_a_changed_configuration_that_could_not_be_read_is_read_again_and_those_that_change_then_too(path: str) -> None:
    world = BrokerWorld(tree=FailingOnce)
    world.create_topic("t")
    assert isinstance(world.store, FailingOnce)
    answered: list[list[str]] = []

    def change() -> Steps:
        resource, edits = Resource(ResourceType.TOPIC, "t"), [IncrementalChange("retention.ms", Change.SET, "222")]
        answered.append((yield from world.broker.configs.edit(resource, edits)))

    world.store.fails = path
    world.broker.slices.run(change(), lambda _error: None)
    world.clock.settle()
    assert not answered, "the change is not applied yet"
    assert not world.store.fails
    world.clock.advance(READ_AGAIN_S)
    world.clock.settle()
    assert answered == [["retention.ms=(default)->222"]]
    assert world.partition("t").log.config.retention_ms == 222
    world.configure("t", retention_ms=333)
    assert world.partition("t").log.config.retention_ms == 333
