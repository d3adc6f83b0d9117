"""A broker registers in each session, as one incarnation; it waits for the end of an earlier process, not for a live namesake."""

import pytest

from moldau.broker.metadata import registration
from moldau.broker.metadata.registration import AGAIN_S, TAKEN_MAX_S, Registration
from moldau.cluster import znodes
from moldau.cluster.changes import NewCluster, Register
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.cluster.store import MetadataStore
from moldau.cluster.znodes import BrokerNode, decode_broker
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import Data, GetData, Outcome
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeSession, FakeTree

ENDPOINTS = (Endpoint("PLAINTEXT", "192.0.2.2", 9092),)
PATH = znodes.broker(3)


class World:
    """A broker that registers, and another session that has the same id."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.tree = FakeTree(self.clock)
        self.other = self.tree.session()
        MetadataStore(self.other).write([NewCluster(znodes.ROOTS, "c")], lambda _outcome: None)
        self.session = self.tree.session()
        self.registered: list[tuple[int, int]] = []
        self.failures: list[CoordinationError] = []
        self.clean_epochs: tuple[int, ...] = ()

    def start(self) -> None:
        store = MetadataStore(self.session)
        info = BrokerInfo(3, ENDPOINTS, "rack")
        Registration(
            store, self.clock, info,
            registered=lambda epochs, session_id: self.registered.append((epochs[-1], session_id)),
            failed=self.failures.append, clean_epochs=self.clean_epochs,
        )  # fmt: skip

    def take_id(self, session: FakeSession) -> None:
        MetadataStore(session).write([Register(3, BrokerNode(ENDPOINTS, None, 0))], lambda _outcome: None)

    def node(self) -> Data | None:
        outcomes: list[Outcome] = []
        self.other.submit(GetData(PATH), outcomes.append)
        return outcomes[0] if isinstance(outcomes[0], Data) else None

    def assert_registered_once_more(self, times: int) -> None:
        """In this session, `times` in all, each in a later incarnation."""
        node = self.node()
        assert node is not None
        assert node.stat.owner == self.session.session_id
        assert len(self.registered) == times
        assert self.registered[-1] == (node.stat.created_id, self.session.session_id)
        assert sorted(dict.fromkeys(self.registered)) == self.registered
        assert self.failures == []


@pytest.fixture
def world() -> World:
    return World()


def test_a_broker_registers_when_it_is_connected(world: World) -> None:
    world.session.suspend()
    world.start()
    assert world.registered == []
    world.session.resume()
    world.assert_registered_once_more(1)
    node = world.node()
    assert node is not None
    assert decode_broker(PATH, node.data)[:2] == (ENDPOINTS, "rack")


def test_it_registers_again_in_another_session_and_not_in_the_same(world: World) -> None:
    world.start()
    for times in (2, 3):
        world.session.suspend()
        world.session.resume()
        assert len(world.registered) == times - 1
        world.session.expire()
        world.session.resume()
        world.assert_registered_once_more(times)


@pytest.mark.parametrize("expires", [False, True])
def test_a_lost_answer_is_one_registration(world: World, expires: bool) -> None:
    world.session.lose_answer()
    world.start()
    assert world.registered == []
    if expires:
        world.session.expire()
    world.session.resume()
    world.assert_registered_once_more(1)


@pytest.mark.parametrize("clean_epochs", [(11, 17), ()])
def test_it_names_the_registrations_since_which_it_has_lost_nothing(world: World, clean_epochs: tuple[int, ...]) -> None:
    """Those up to its last clean stop, and as long as it runs all that it had: the controller may have seen none but the first."""
    world.clean_epochs = clean_epochs
    expected = [*clean_epochs]
    for _ in range(3):
        expected += [each[0] for each in world.registered[-1:]]
        if not world.registered:
            world.start()
        else:
            world.session.expire()
            world.session.resume()
        world.clock.settle()
        node = world.node()
        assert node is not None
        assert decode_broker(PATH, node.data).previous_epochs == tuple(expected)


def test_what_this_session_has_registered_already_counts(world: World) -> None:
    world.take_id(world.session)
    world.start()
    world.assert_registered_once_more(1)


def test_the_registration_of_an_earlier_process_is_waited_for_until_its_session_ends(world: World) -> None:
    world.take_id(world.other)
    world.start()
    world.clock.advance(TAKEN_MAX_S - 2 * AGAIN_S)
    assert (world.registered, world.failures) == ([], [])
    world.other.expire()
    world.other.resume()
    world.clock.advance(AGAIN_S)
    world.assert_registered_once_more(1)


def test_a_live_broker_of_the_same_id_is_an_error_after_a_while_and_keeps_its_registration(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.take_id(world.other)
    world.start()
    world.clock.advance(TAKEN_MAX_S + AGAIN_S)
    (failure,) = world.failures
    reason = "a live broker has registered there; give each broker of a cluster a broker.id of its own"
    assert (str(failure), failure.retriable) == (f"{PATH}: {reason}", False)
    assert [each.message for each in caplog.records if each.name == registration.__name__] == [
        f"broker id is registered by another session: path={PATH} session={world.other.session_id}; waiting up to 30 s until that has ended"
    ]
    world.other.expire()
    world.other.resume()
    world.clock.advance(60)
    assert world.registered == [], "who was given this error has stopped"
    assert len(world.failures) == 1


def test_each_session_waits_by_itself(world: World) -> None:
    world.take_id(world.other)
    world.start()
    world.clock.advance(TAKEN_MAX_S / 2)
    world.session.expire()
    world.session.resume()
    world.clock.advance(TAKEN_MAX_S - 2 * AGAIN_S)
    assert world.failures == []
    world.clock.advance(3 * AGAIN_S)
    assert len(world.failures) == 1


def test_a_store_that_fails_is_reported(world: World) -> None:
    world.session.fail_next(CoordinationError("no room", retriable=True))
    world.start()
    assert [str(failure) for failure in world.failures] == ["no room"]


def test_a_broker_that_was_registered_tries_again_after_a_failure_in_another_session(world: World) -> None:
    """Otherwise it would serve without being one of the cluster, until the session after that."""
    world.start()
    world.session.expire()
    for _ in range(2):
        world.session.fail_next(CoordinationError("no room", retriable=True))
    world.session.resume()
    world.clock.advance(AGAIN_S)
    assert [str(failure) for failure in world.failures] == ["no room", "no room"]
    assert world.node() is None
    world.failures.clear()
    world.clock.advance(AGAIN_S)
    world.assert_registered_once_more(2)
