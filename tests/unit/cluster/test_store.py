"""Metadata on the tree: each change by each outcome of its write, what is read, and what events mean."""

from typing import TypeVar

import pytest

from moldau.cluster import queries, znodes
from moldau.cluster.changes import (
    Change,
    ClaimController,
    DropNotifications,
    DropPartitions,
    DropTopic,
    MarkDeletion,
    NewCluster,
    NewPartitions,
    NewState,
    NewTopic,
    PutBrokerConfig,
    PutState,
    PutTopic,
    PutTopicConfig,
    Register,
    writes_of,
)
from moldau.cluster.queries import FoundState, Query
from moldau.cluster.snapshot import Endpoint
from moldau.cluster.store import (
    READS_AT_ONCE,
    BrokersChanged,
    ConfigsChanged,
    ControllerChanged,
    DeletionsChanged,
    MetadataStore,
    StoreEvent,
    TopicChanged,
    TopicsChanged,
    WriteResult,
)
from moldau.cluster.znodes import (
    BrokerNode,
    MalformedNodeError,
    PartitionState,
    encode_state,
)
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    BadVersionError,
    Coordination,
    Create,
    Data,
    Delete,
    GetChildren,
    GetData,
    Multi,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Outcome,
    Request,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    SetData,
)
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeSession, FakeTree

T = TypeVar("T")
ID, OTHER_ID = b"i" * 16, b"o" * 16
STATE = PartitionState(0, 5, (0,), 1)
NODE = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), None, 1)
CONFIG = {"retention.ms": "5"}
EMPTY = (znodes.partitions("empty"), znodes.topic("empty"), znodes.topic_config("empty"))
CHANGES = ("config_change_0000000000", "config_change_0000000001")
BEFORE: tuple[Change, ...] = (
    NewTopic("t", ID, [(0,)], {}),
    NewState("t", 0, STATE),
    NewTopic("empty", ID, [], {}),
    MarkDeletion("empty"),
    PutBrokerConfig(1, {}, None),
    PutBrokerConfig(2, {}, None),
)
"""What is on the tree before each change: of version 0 all."""


class Case:
    """A change, what is read of its node when it has happened, and what another client does before it so that it conflicts."""

    def __init__(self, name: str, change: Change, node: str, conflict: Create | SetData | Delete, error: type[NodeError]) -> None:
        self.name = name
        self.change = change
        self.node = node
        self.conflict = conflict
        self.error = error


CASES = [
    Case("NewTopic", NewTopic("n", ID, [(0,), (0,)], CONFIG), znodes.topic("n"), Create(znodes.topic_config("n")), NodeExistsError),
    Case("PutTopic", PutTopic("t", ID, [(0,), (0,)], 0), znodes.topic("t"), SetData(znodes.topic("t"), b"{}"), BadVersionError),
    Case("NewState", NewState("t", 1, STATE), znodes.partition_state("t", 1), Create(znodes.partition("t", 1)), NodeExistsError),
    Case(
        "PutState",
        PutState("t", 0, STATE._replace(leader_epoch=6), 0),
        znodes.partition_state("t", 0),
        SetData(znodes.partition_state("t", 0), b"{}"),
        BadVersionError,
    ),
    Case("MarkDeletion", MarkDeletion("t"), znodes.delete_topic("t"), Delete(znodes.DELETE_TOPICS), NoNodeError),
    Case("DropPartitions", DropPartitions("t", [0]), znodes.partition("t", 0), Delete(znodes.partition_state("t", 0)), NoNodeError),
    Case("DropTopic", DropTopic("empty", EMPTY), znodes.topic("empty"), Delete(znodes.topic_config("empty")), NoNodeError),
    Case(
        "PutTopicConfig",
        PutTopicConfig("t", CONFIG, 0),
        znodes.topic_config("t"),
        SetData(znodes.topic_config("t"), b"{}"),
        BadVersionError,
    ),
    Case(
        "PutBrokerConfig", PutBrokerConfig(1, CONFIG, 0), znodes.broker_config(1), SetData(znodes.broker_config(1), b"{}"), BadVersionError
    ),
    Case(
        "first broker config",
        PutBrokerConfig(None, CONFIG, None),
        znodes.broker_config(None),
        Create(znodes.broker_config(None)),
        NodeExistsError,
    ),
    Case("ClaimController", ClaimController(0, 2, 0, 9), znodes.CONTROLLER, Create(znodes.CONTROLLER), NodeExistsError),
    Case("epoch moved", ClaimController(0, 2, 0, 9), znodes.CONTROLLER, SetData(znodes.CONTROLLER_EPOCH, b"7"), BadVersionError),
    Case(
        "DropNotifications",
        DropNotifications(CHANGES),
        znodes.config_change(CHANGES[0]),
        Delete(znodes.config_change(CHANGES[1])),
        NoNodeError,
    ),
    Case("NewCluster", NewCluster(["/new", "/new/er"], "id"), "/new", Create(znodes.CLUSTER_ID), NodeExistsError),
    Case("NewCluster, registered", NewCluster(["/new"], None, Register(0, NODE)), znodes.broker(0), Create("/new"), NodeExistsError),
    Case("NewPartitions", NewPartitions("bare"), znodes.partitions("bare"), Delete(znodes.topic("bare")), NoNodeError),
    Case("Register", Register(0, NODE), znodes.broker(0), Create(znodes.broker(0)), NodeExistsError),
]


class World:
    """A store, another client, and a tree that has what `BEFORE` says."""

    def __init__(self, latency_s: float) -> None:
        self.clock = FakeClock()
        self.tree = FakeTree(self.clock)
        self.other = self.tree.session()
        roots = [Create(path) for path in znodes.ROOTS]
        self.ask(self.other, Multi((*roots, Create(znodes.CONTROLLER_EPOCH, b"1"), Create(znodes.topic("bare")))))
        for change in BEFORE:
            self.ask(self.other, Multi(writes_of(change)))
        self.session: FakeSession = self.tree.session(latency_s)
        self.store = MetadataStore(self.session)
        self.outcomes: list[WriteResult | CoordinationError] = []

    def settle(self) -> None:
        while self.clock.pending:
            self.clock.advance(1)

    def ask(self, session: Coordination, request: Request) -> Outcome:
        outcomes: list[Outcome] = []
        session.submit(request, outcomes.append)
        self.settle()
        (outcome,) = outcomes
        assert not isinstance(outcome, CoordinationError), outcome
        return outcome

    def data(self, path: str) -> Data | None:
        outcomes: list[Outcome] = []
        self.other.submit(GetData(path), outcomes.append)
        (outcome,) = outcomes
        return outcome if isinstance(outcome, Data) else None

    def content(self, path: str = "/") -> dict[str, bytes]:
        """The data of all nodes."""
        found = self.data(path)
        assert found is not None
        children = self.ask(self.other, GetChildren(path))
        content = {path: found.data}
        for name in children.names:  # type: ignore[union-attr]
            content |= self.content(f"{path.rstrip('/')}/{name}")
        return content

    def write(self, change: Change, epoch_version: int | None = None) -> None:
        self.store.write([change], self.outcomes.append, epoch_version)

    def written(self) -> WriteResult | CoordinationError:
        self.settle()
        (outcome,) = self.outcomes
        self.outcomes.clear()
        return outcome


@pytest.fixture(params=[0.0, 0.5], ids=["at once", "500 ms"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


def has_happened(world: World, case: Case) -> bool:
    """By the node that the case names, which the change makes, changes or removes."""
    found = world.data(case.node)
    if isinstance(case.change, DropPartitions | DropTopic | DropNotifications):
        return found is None
    expected = {write.path: write.data for write in writes_of(case.change) if isinstance(write, Create | SetData)}
    return found is not None and found.data == expected[case.node]


def witness_is_named(world: World, case: Case, written: WriteResult | CoordinationError) -> bool:
    assert isinstance(written, WriteResult), written
    found = world.data(case.node)
    return written.created_id == (None if found is None else found.stat.created_id)


def test_a_change_that_is_written(world: World, case: Case) -> None:
    world.write(case.change)
    written = world.written()
    assert has_happened(world, case)
    assert witness_is_named(world, case, written)
    notifications = world.ask(world.other, GetChildren(znodes.CONFIG_CHANGES))
    assert isinstance(written, WriteResult)
    made = [] if written.notification is None else [written.notification]
    ours = [name for name in notifications.names if name in made]  # type: ignore[union-attr]
    assert ours == made
    assert bool(made) == isinstance(case.change, PutTopicConfig | PutBrokerConfig)


def test_a_change_that_conflicts_leaves_the_tree_alone(world: World, case: Case) -> None:
    if case.name == "MarkDeletion":
        world.ask(world.other, Delete(znodes.delete_topic("empty")))
    world.ask(world.other, case.conflict)
    before = world.content()
    world.write(case.change)
    assert type(world.written()) is case.error
    assert world.content() == before


def test_a_change_of_a_controller_whose_epoch_is_over_is_refused(world: World, case: Case) -> None:
    world.ask(world.other, SetData(znodes.CONTROLLER_EPOCH, b"2"))
    before = world.content()
    world.write(case.change, epoch_version=0)
    error = world.written()
    assert isinstance(error, BadVersionError)
    assert (error.path, error.index) == (znodes.CONTROLLER_EPOCH, 0)
    assert world.content() == before


def test_a_lost_answer_to_a_change_that_has_happened(world: World, case: Case) -> None:
    world.session.lose_answer()
    world.write(case.change)
    world.settle()
    after = world.content()
    assert (has_happened(world, case), world.outcomes) == (True, []), "unknown until there is a connection again"
    world.session.resume()
    assert witness_is_named(world, case, world.written())
    assert world.content() == after, "it was not made twice"


def test_a_lost_answer_to_a_change_that_has_not_happened(world: World, case: Case) -> None:
    world.session.hold()
    world.write(case.change)
    world.settle()
    world.session.suspend()
    world.session.release()
    assert (has_happened(world, case), world.outcomes) == (False, [])
    world.session.resume()
    assert witness_is_named(world, case, world.written())
    assert has_happened(world, case)


@pytest.mark.parametrize("happened", [True, False])
def test_a_session_that_expires_before_a_lost_answer_is_settled(world: World, case: Case, happened: bool) -> None:
    world.session.lose_answer() if happened else world.session.hold()
    world.write(case.change)
    world.settle()
    world.session.expire()
    assert world.outcomes == []
    world.session.resume()
    assert isinstance(world.written(), SessionExpiredError)


def test_a_conflict_that_came_while_the_answer_was_lost(world: World, case: Case) -> None:
    """The change has not happened, and what another client has done meanwhile is no witness of it."""
    world.session.hold()
    world.write(case.change)
    world.settle()
    world.session.suspend()
    world.session.release()
    if case.name == "MarkDeletion":
        world.ask(world.other, Delete(znodes.delete_topic("empty")))
    world.ask(world.other, case.conflict)
    before = world.content()
    world.session.resume()
    assert type(world.written()) is case.error
    assert world.content() == before


def test_the_answer_to_the_witness_may_be_lost_too(world: World) -> None:
    world.session.lose_answer()
    world.write(Register(0, NODE))
    world.settle()
    for _ in range(3):
        world.session.lose_answer()
        world.session.resume()
        world.settle()
        assert world.outcomes == []
    world.session.resume()
    assert isinstance(world.written(), WriteResult)


def test_the_second_attempt_may_be_refused_by_the_first(world: World) -> None:
    """The request that was lost reaches the tree after the witness was read."""
    world.session.hold()
    world.write(MarkDeletion("t"))
    world.settle()
    world.session.suspend()
    world.session.resume()
    world.settle()
    world.session.release(1)
    world.ask(world.other, Create(znodes.delete_topic("t")))
    world.session.release()
    assert isinstance(world.written(), WriteResult)


def test_only_our_own_registration_is_a_witness(world: World) -> None:
    world.session.hold()
    world.write(Register(0, NODE))
    world.settle()
    world.session.suspend()
    world.session.release()
    twin = world.tree.session()
    world.ask(twin, Multi(writes_of(Register(0, NODE))))
    world.session.resume()
    assert isinstance(world.written(), NodeExistsError)


def test_a_write_that_waited_for_the_next_session_is_settled_in_that(world: World) -> None:
    world.session.expire()
    listened: list[StoreEvent | SessionEvent] = []

    def listener(event: StoreEvent | SessionEvent) -> None:
        listened.append(event)
        if isinstance(event, SessionEvent) and event.state is SessionState.EXPIRED:
            world.write(Register(0, NODE))

    world.store.listen(listener)
    world.session.lose_answer()
    world.session.resume()
    world.settle()
    world.session.resume()
    written = world.written()
    assert isinstance(written, WriteResult)
    found = world.data(znodes.broker(0))
    assert found is not None
    assert (found.stat.owner, found.stat.created_id) == (world.session.session_id, written.created_id)
    states = [event.state for event in listened if isinstance(event, SessionEvent)]
    assert states == [SessionState.EXPIRED, SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]


# Reading


def read(world: World, query: Query[T]) -> T | CoordinationError:
    outcomes: list[T | CoordinationError] = []
    queries.answer(world.store, query, outcomes.append)
    world.settle()
    (outcome,) = outcomes
    return outcome


def test_many_nodes_are_read_in_the_order_of_the_requests_and_missing_ones_are_none(world: World) -> None:
    names = [f"n{number}" for number in range(READS_AT_ONCE + 300)]
    for name in names[::2]:
        world.ask(world.other, Create(znodes.topic(name), name.encode()))
    found: list[object] = []
    world.store.read_many([GetData(znodes.topic(name)) for name in names], found.append)
    world.settle()
    (results,) = found
    assert isinstance(results, list)
    assert [each and each.data for each in results] == [None if number % 2 else name.encode() for number, name in enumerate(names)]


def test_topics_are_read_with_versions_and_states(world: World) -> None:
    world.ask(world.other, SetData(znodes.partition_state("t", 0), encode_state(STATE)))
    (found,) = read(world, queries.topics(["t", "none"]))  # type: ignore[misc]
    assert (found.name, found.node.topic_id, found.version, found.states) == ("t", ID, 0, (FoundState(STATE, 1),))
    world.ask(world.other, SetData(znodes.topic("t"), b"garbage"))
    assert isinstance(read(world, queries.topics(["t"])), MalformedNodeError)


def test_names_are_read(world: World) -> None:
    assert read(world, queries.topic_names()) == (["bare", "empty", "t"], ["empty"])


def test_a_read_whose_answer_was_lost_is_made_again(world: World) -> None:
    outcomes: list[object] = []
    world.session.lose_answer()
    queries.answer(world.store, queries.controller_nodes(), outcomes.append)
    world.settle()
    assert outcomes == []
    world.session.resume()
    world.settle()
    assert [each.epoch for each in outcomes if isinstance(each, queries.ControllerNodes)] == [1]
    world.session.expire()
    queries.answer(world.store, queries.controller_nodes(), outcomes.append)
    world.session.resume()
    assert isinstance(outcomes[-1], SessionExpiredError)


def test_a_watch_on_a_missing_controller_sees_its_creation(world: World) -> None:
    events: list[StoreEvent | SessionEvent] = []
    world.store.listen(events.append)
    events.clear()
    found = read(world, queries.controller_nodes())
    assert isinstance(found, queries.ControllerNodes)
    assert (found.broker_id, found.epoch, found.epoch_version) == (None, 1, 0)
    world.ask(world.other, Create(znodes.CONTROLLER, b'{"version":1,"brokerid":7,"timestamp":"1"}', ephemeral=True))
    assert events == [ControllerChanged()]
    found = read(world, queries.controller_nodes())
    assert isinstance(found, queries.ControllerNodes)
    assert (found.broker_id, found.owner) == (7, world.other.session_id)


def test_events_say_what_to_read_again(world: World) -> None:
    events: list[StoreEvent | SessionEvent] = []
    world.store.listen(events.append)
    assert events == [SessionEvent(SessionState.CONNECTED, world.session.session_id)]
    events.clear()
    read(world, queries.contents())
    read(world, queries.notification_names())
    for change in (
        Register(7, NODE),
        MarkDeletion("t"),
        PutTopic("t", OTHER_ID, [(0,)], 0),
        PutTopicConfig("t", {}, 0),
        NewTopic("n", ID, [], {}),
    ):
        world.ask(world.other, Multi(writes_of(change)))
    assert events == [BrokersChanged(), DeletionsChanged(), TopicChanged("t"), ConfigsChanged(), TopicsChanged()]
