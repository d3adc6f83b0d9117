"""How a broker makes a cluster, and joins it."""

from collections.abc import Callable
from typing import Any

from moldau.broker.metadata.membership import ClusterMembership
from moldau.cluster import znodes
from moldau.cluster.queries import ConfigNodes
from moldau.cluster.snapshot import BrokerInfo, Endpoint, MetadataCache
from moldau.cluster.store import MetadataStore
from moldau.model.config.store import BrokerConfig
from moldau.ports.coordination import Coordination, Create, Data, Done, GetData, Multi, Request
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeTree
from support.broker_world import BrokerWorld
from support.trees import AskedTree

INFO = BrokerInfo(0, (Endpoint("PLAINTEXT", "192.0.2.2", 9092),))


class WrittenTree(AskedTree):
    """Keeps what was written."""

    def __init__(self, path: str, time_ms: Callable[[], int]) -> None:
        super().__init__(path, time_ms)
        self.written: list[Multi] = []

    def submit(self, request: Request, done: Done) -> None:
        if isinstance(request, Multi):
            self.written.append(request)
        super().submit(request, done)


def read(session: Coordination, clock: FakeClock) -> Any:
    """The outcome of what a broker reads first."""
    outcomes: list[object] = []
    membership = ClusterMembership(
        BrokerConfig(),
        MetadataStore(session),
        MetadataCache(),
        clock=clock,
        slices=None,  # type: ignore[arg-type]
        random_bytes=bytes,
        reconfigured=lambda: None,
        raised_epochs=lambda _partitions: None,
        connect=None,  # type: ignore[arg-type]
    )
    membership.read(INFO, None, outcomes.append)
    (outcome,) = outcomes
    return outcome


def owner(session: Coordination) -> int:
    """The session that has registered broker 0; 0 for none."""
    found: list[object] = []
    session.submit(GetData(znodes.broker(0)), found.append)
    return found[0].stat.owner if isinstance(found[0], Data) else 0


def test_a_first_start_writes_twice_the_cluster_with_the_registration_and_the_claim() -> None:
    world = BrokerWorld(tree=WrittenTree)
    assert isinstance(world.store, WrittenTree)
    made, claim = ([write.path for write in each.writes] for each in world.store.written)
    assert made[-2:] == [znodes.CLUSTER_ID, znodes.broker(0)]
    assert claim == [znodes.CONTROLLER, znodes.CONTROLLER_EPOCH]


def test_who_makes_the_cluster_is_registered_by_that_and_who_finds_it_is_not() -> None:
    clock = FakeClock()
    tree = FakeTree(clock)
    first, second = tree.session(), tree.session()
    assert read(first, clock) == ConfigNodes({}, {})
    assert owner(first) == first.session_id
    first.close()
    assert read(second, clock) == ConfigNodes({}, {})
    assert owner(second) == 0


def test_a_cluster_is_made_also_where_another_session_is_registered_with_the_same_id() -> None:
    clock = FakeClock()
    tree = FakeTree(clock)
    old, new = tree.session(), tree.session()
    registered = (Create("/brokers"), Create(znodes.BROKER_IDS), Create(znodes.broker(0), b"{}", ephemeral=True))
    old.submit(Multi(registered), lambda _outcome: None)
    assert read(new, clock) == ConfigNodes({}, {})
    assert owner(new) == old.session_id
    made: list[object] = []
    new.submit(GetData(znodes.CLUSTER_ID), made.append)
    assert isinstance(made[0], Data)
