"""Controllers of several brokers on one coordination tree, with brokers that write down what they are sent."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from moldau.cluster import znodes
from moldau.cluster.changes import NewCluster, Register
from moldau.cluster.control import Control, ControlReply, LeaderAndIsr, StopReplica, UpdateMetadata
from moldau.cluster.controller.events import BrokerRegistered
from moldau.cluster.controller.machine import Controller, ControllerRole
from moldau.cluster.controller.requests import CreateTopics, DeleteTopics, GrowthSpec, GrowTopics, Request, TopicChoice, TopicSpec
from moldau.cluster.controller.runner import ControllerRunner
from moldau.cluster.queries import LiveBroker
from moldau.cluster.snapshot import Endpoint, MetadataSnapshot
from moldau.cluster.store import MetadataStore, WriteResult
from moldau.cluster.znodes import BrokerNode, PartitionState, decode_state, decode_topic
from moldau.model.config import BrokerConfig, read_static
from moldau.model.errors import CoordinationError, PeerError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Children, Data, GetChildren, GetData, Outcome, SessionEvent, SessionState
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeTree


class Broker:
    """One broker: its session, its controller, and what it was sent last. It fences by the controller's epoch, as a real one does."""

    def __init__(self, cluster: "Cluster", broker_id: int, latency_s: float, *settings: str) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.session = cluster.tree.session(latency_s)
        self.store = MetadataStore(self.session)
        self.epoch = 0
        self.controller_epoch = 0
        self.snapshot = MetadataSnapshot()
        self.led: dict[TopicPartition, tuple[int, int]] = {}
        """Leader and epoch of each partition that it has a replica of, as it was sent last."""
        self.received: list[str] = []
        self.is_up = True
        self.is_clean = True
        """Whether it has lost nothing when it registers again."""
        self.earlier: tuple[int, ...] = ()
        """Its registrations since which it has lost nothing."""
        self.floors: dict[TopicPartition, int] = {}
        self.offline: dict[TopicPartition, None] = {}
        """Partitions whose log directory has failed."""
        self.controller = Controller(broker_id, BrokerConfig(read_static(settings=list(settings))), cluster.new_topic_id)
        self.failures: list[CoordinationError] = []
        self.raised = 0
        self.runner = ControllerRunner(
            self.controller, self.store, cluster.clock, self._send,
            soon=lambda run: cluster.clock.call_later(0.0, run), failed=self.failures.append, raised_epochs=self._raised,
        )  # fmt: skip
        self.store.listen(self._heard)

    def register(self) -> None:
        self.earlier = (*self.earlier, self.epoch) if self.is_clean else ()
        node = BrokerNode((Endpoint("PLAINTEXT", "h", 9000 + self.broker_id),), self.cluster.racks.get(self.broker_id), 0, self.earlier)
        self.store.write([Register(self.broker_id, node)], self._registered)

    def _registered(self, outcome: WriteResult | CoordinationError) -> None:
        if isinstance(outcome, WriteResult) and outcome.created_id is not None:
            self.epoch = outcome.created_id
            self.controller_epoch = 0
            self.runner.take(BrokerRegistered(self.epoch, self.session.session_id))

    def _heard(self, event: object) -> None:
        if isinstance(event, SessionEvent) and event.state is SessionState.CONNECTED and self.epoch and self.expired:
            self.controller_epoch = 0
            self.register()
        if isinstance(event, SessionEvent) and event.state in (SessionState.EXPIRED, SessionState.CONNECTED):
            self.expired = event.state is SessionState.EXPIRED

    expired = False

    def _raised(self, partitions: int) -> None:
        self.raised += partitions

    def _send(self, broker: LiveBroker, control: Control, done: Callable[[ControlReply], object]) -> None:
        receiver = self.cluster.brokers[broker.info.broker_id]
        self.cluster.clock.call_later(0.0, lambda: done(receiver.apply(broker.epoch, control)))

    def apply(self, broker_epoch: int, control: Control) -> ControlReply:
        """Carry out what a controller has sent."""
        if control.controller_epoch < self.controller_epoch or broker_epoch < self.epoch or not self.is_up:
            return ControlReply(is_stale=True)
        self.controller_epoch = control.controller_epoch
        match control:
            case UpdateMetadata():
                self.received.append(f"update {[topic.name for topic in control.topics]} without {list(control.deleted)}")
                ids = None if control.everything is None else {each.topic_id for each in control.everything}
                missed = [name for name, topic in self.snapshot.topics.items() if ids is not None and topic.topic_id not in ids]
                deleted = (*control.deleted, *missed)
                self.snapshot = self.snapshot.updated(control.brokers, control.controller_id, control.topics, deleted, {})
            case LeaderAndIsr():
                floors = {}
                offline = []
                for each in control.partitions:
                    partition = TopicPartition(each.topic, each.info.partition)
                    if partition in self.offline:
                        offline.append((each.topic_id, partition.partition))
                        continue
                    self.received.append(f"lead {partition} {each.info.leader} in {each.info.leader_epoch}" + " new" * each.is_new)
                    if each.info.leader_epoch <= self.floors.get(partition, -1):
                        floors[partition] = self.floors[partition]
                        continue
                    self.cluster.note_leader(partition, each.topic_id, each.info.leader, each.info.leader_epoch)
                    self.led[partition] = each.info.leader, each.info.leader_epoch
                return ControlReply(floors, offline=tuple(offline))
            case StopReplica():
                for topic in control.topics:
                    verb = "delete" if control.deletes else "stop"
                    self.received.append(f"{verb} {topic.name}" + ("" if topic.only is None else f" {list(topic.only)}"))
                    self.led = {
                        each: led
                        for each, led in self.led.items()
                        if each.topic != topic.name or (topic.only is not None and each.partition not in topic.only)
                    }
        return ControlReply()

    def take(self) -> list[str]:
        """What it was sent since the last call."""
        received, self.received = self.received, []
        return received

    # Requests

    def ask(self, request: Request) -> list[Any]:
        """A request to this broker's controller; the list gets its outcome."""
        outcomes: list[Any] = []
        self.runner.ask(request, outcomes.append)
        return outcomes

    def create(self, name: str, partitions: int = 1, replicas: int = 1, **options: Any) -> list[Any]:
        return self.ask(CreateTopics([TopicSpec(name, partitions, replicas, **options)]))

    def grow(self, name: str, total: int) -> list[Any]:
        return self.ask(GrowTopics([GrowthSpec(name, total)]))

    def delete(self, *names: str) -> list[Any]:
        return self.ask(DeleteTopics([TopicChoice(name) for name in names]))


class Cluster:
    """Brokers on a tree."""

    def __init__(self, brokers: int = 1, latency_s: float = 0.0, *settings: str, racks: Mapping[int, str] = MappingProxyType({})) -> None:
        self.racks = racks
        self.clock = FakeClock()
        self.tree = FakeTree(self.clock)
        self.other = self.tree.session()
        self._ids = 0
        self._leaders: dict[tuple[bytes, TopicPartition, int], int] = {}
        MetadataStore(self.other).write([NewCluster(znodes.ROOTS, "c")], lambda _outcome: None)
        self.brokers = {broker_id: Broker(self, broker_id, latency_s, *settings) for broker_id in range(brokers)}
        for broker in self.brokers.values():
            broker.register()
        self.settle()

    def new_topic_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "little")

    def note_leader(self, partition: TopicPartition, topic_id: bytes, leader: int, epoch: int) -> None:
        """An epoch has one leader."""
        assert self._leaders.setdefault((topic_id, partition, epoch), leader) == leader, f"two leaders of {partition} in epoch {epoch}"

    def settle(self, seconds: float = 0.0) -> None:
        """Have everything happen that is due, and what that leads to, for some time."""
        self.clock.advance(seconds)
        self.clock.settle()

    def controllers(self) -> list[Broker]:
        """Those that are active; one whose session has expired may not know it yet."""
        return [
            broker
            for broker in self.brokers.values()
            if broker.controller.role is ControllerRole.ACTIVE and broker.session.state is SessionState.CONNECTED
        ]

    # The tree as another client sees it

    def children(self, path: str) -> list[str]:
        outcomes: list[Outcome] = []
        self.other.submit(GetChildren(path), outcomes.append)
        return list(outcomes[0].names) if isinstance(outcomes[0], Children) else []

    def data(self, path: str) -> bytes | None:
        outcomes: list[Outcome] = []
        self.other.submit(GetData(path), outcomes.append)
        return outcomes[0].data if isinstance(outcomes[0], Data) else None

    def states(self, name: str) -> list[PartitionState | None]:
        """The states of a topic's partitions."""
        node = self.data(znodes.topic(name))
        assert node is not None
        found = []
        for index in range(len(decode_topic("", node).replicas)):
            data = self.data(znodes.partition_state(name, index))
            found.append(None if data is None else decode_state("", data))
        return found


def error_of(outcome: Any, name: str | None = None) -> str:
    """The name of the code that a request ended with; of one topic of it."""
    if name is not None and isinstance(outcome, dict):
        outcome = outcome[name] if name in outcome else outcome[TopicChoice(name)]
    return outcome.code.name if isinstance(outcome, PeerError) else "NONE"
