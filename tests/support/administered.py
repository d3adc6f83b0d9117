"""A broker for the administrative handlers: they are called directly, and what the broker's replicas are told is written down."""

from typing import TYPE_CHECKING, Any, TypeVar, cast

from moldau.broker.api.catalog import served_api
from moldau.cluster.controller.requests import GrowthSpec, PlannedTopic, TopicSpec
from moldau.cluster.snapshot import Endpoint, MetadataSnapshot
from moldau.model.config import BrokerConfig
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Done, Multi, Request
from moldau.protocol.codec import decode, encode
from moldau.protocol.messages import load
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld
from support.requests import plain_request
from support.trees import AskedTree

if TYPE_CHECKING:
    from moldau.log.description import DirectoryDescription

ADVERTISED = ("broker.example", 9999)
R = TypeVar("R")


class FailingTree(AskedTree):
    """A tree whose next write fails as on a full disk, when told to."""

    full = False

    def submit(self, request: Request, done: Done) -> None:
        if self.full and isinstance(request, Multi):
            request = Multi((*request.writes, Create("/no/such/parent")))
        super().submit(request, done)


class WatchedReplicas:
    """Writes down what replicas are told, and breaks the logs of some."""

    def __init__(self, world: BrokerWorld) -> None:
        self.broken: set[TopicPartition] = set()
        self._calls: list[str] = []
        self._replicas = world.broker.replicas
        self._become, self._stop, self._reconfigure = self._replicas.become_leader, self._replicas.stop, self._replicas.reconfigure
        for name, call in (("become_leader", self.become_leader), ("stop", self.stop), ("reconfigure", self.reconfigure)):
            setattr(self._replicas, name, call)
        world.broker.on_reconfigured.append(lambda: self._calls.append("reconfigure broker"))

    @property
    def served(self) -> set[TopicPartition]:
        return {partition.topic_partition for partition in self._replicas.partitions}

    def become_leader(self, topic_partition: TopicPartition, *arguments: Any, **options: Any) -> None:
        self._calls.append(f"open {topic_partition}")
        if topic_partition in self.broken:
            raise StorageError("broken", path=str(topic_partition))
        self._become(topic_partition, *arguments, **options)

    def stop(self, topic_partitions: list[TopicPartition], *, delete: bool) -> None:
        self._calls += [f"{'remove' if delete else 'close'} {each}" for each in topic_partitions]
        self._stop(topic_partitions, delete=delete)

    def reconfigure(self, topic_partition: TopicPartition, settings: Any) -> None:
        call = f"reconfigure {topic_partition.topic}"
        if call not in self._calls[-1:]:
            self._calls.append(call)
        self._reconfigure(topic_partition, settings)

    def take(self) -> list[str]:
        """The calls since the last time; once each where one topic is told for all its partitions."""
        taken, self._calls = self._calls, []
        return taken


class Administered:
    """A broker, and a way to ask its handlers."""

    def __init__(self, *settings: str, store: str | None = None) -> None:
        named: dict[str, Any] = dict(setting.split("=", 1) for setting in settings)
        self.world = BrokerWorld(tree=FailingTree, **named) if store is None else BrokerWorld(tree=FailingTree, store=store, **named)
        self.advertised = Endpoint("PLAINTEXT", *ADVERTISED)
        self.directories: list[DirectoryDescription] = []
        """As `show_directories` was told."""
        self._watch()

    def _watch(self) -> None:
        self.broker = self.world.broker
        self.host = WatchedReplicas(self.world)
        self.tree = cast("FailingTree", self.world.store)
        if self.directories:
            self.show_directories(*self.directories)

    def show_directories(self, *directories: "DirectoryDescription") -> None:
        """Have the logs say that they lie so."""
        self.directories = list(directories)
        self.broker.logs.describe = lambda: self.directories  # type: ignore[method-assign]

    def restart(self) -> None:
        self.world.restart()
        self._watch()

    @property
    def clock(self) -> FakeClock:
        return self.world.clock

    @property
    def config(self) -> BrokerConfig:
        return self.broker.config

    @property
    def metadata(self) -> MetadataSnapshot:
        return self.broker.metadata

    def create(self, *topics: TopicSpec) -> dict[str, PlannedTopic | PeerError]:
        return self.world.finish(self.broker.admin.create(topics))

    def grow(self, name: str, total: int) -> None:
        assert self.world.finish(self.broker.admin.grow([GrowthSpec(name, total)])) == {name: None}

    def ask(self, request: Any, version: int, answer: type[R]) -> R:
        """Hand a request to its handler as it arrives in `version`; the answer as the client of that version reads it."""
        api_key = type(request).API
        messages = load(api_key)
        assert messages.response is answer
        arrived = decode(messages.request, version, memoryview(bytes(encode(request, version))))
        answers: list[Any] = []
        asked = plain_request(api_key, version, advertised=self.advertised)
        steps = served_api(api_key).handler(self.broker, arrived, asked, answers.append)
        if steps is not None:
            self.world.finish(steps)
        (response,) = answers
        return decode(answer, version, memoryview(bytes(encode(response, version))))


def code(number: int) -> str:
    """The name of an error code."""
    return ErrorCode(number).name
