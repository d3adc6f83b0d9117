"""A broker for the administrative handlers: real metadata on a tree in memory, and a host that writes down what it is asked to do."""

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.adapters.sqlite_file import MEMORY
from moldau.broker.admin_log import AdminLog
from moldau.broker.api.catalog import served_api
from moldau.broker.configs import Configs
from moldau.broker.topics import Topics
from moldau.cluster.registry import Registry
from moldau.cluster.snapshot import BrokerInfo, Endpoint, MetadataSnapshot
from moldau.model.config import BrokerConfig, read_static
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps, drain
from moldau.ports.coordination import Create, Done, Multi, Request
from moldau.protocol.codec import decode, encode
from moldau.protocol.messages import load
from moldau.testing.clock import FakeClock
from support.requests import plain_request
from support.trees import AskedTree

if TYPE_CHECKING:
    from moldau.log.description import DirectoryDescription

ME = 0
ADVERTISED = ("broker.example", 9999)
R = TypeVar("R")


class FailingTree(AskedTree):
    """A tree whose next write fails as on a full disk, when told to."""

    full = False

    def submit(self, request: Request, done: Done) -> None:
        if self.full and isinstance(request, Multi):
            request = Multi((*request.writes, Create("/no/such/parent")))
        super().submit(request, done)


@dataclass
class Host:
    """A :class:`moldau.broker.host.PartitionHost`."""

    calls: list[str] = field(default_factory=list)
    served: set[TopicPartition] = field(default_factory=set)
    broken: set[TopicPartition] = field(default_factory=set)

    def storage_lost(self) -> PeerError | None:
        return None

    def open_partitions(self, wanted: Sequence[tuple[TopicPartition, bytes]]) -> Steps:
        for topic_partition, _ in wanted:
            self.calls.append(f"open {topic_partition}")
            if topic_partition not in self.broken:
                self.served.add(topic_partition)
            yield UNFINISHED

    def remove_partitions(self, topic_partitions: Sequence[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self.calls.append(f"remove {topic_partition}")
            self.served.discard(topic_partition)

    def close_partitions(self, topic_partitions: Sequence[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self.calls.append(f"close {topic_partition}")
            self.served.discard(topic_partition)

    def topics_deleted(self, topics: Iterable[str]) -> Steps:
        """Nothing is kept of them here."""
        yield UNFINISHED

    def reconfigure_topic(self, topic: str) -> Steps:
        self.calls.append(f"reconfigure {topic}")
        yield UNFINISHED

    def reconfigure_broker(self, changed: set[str]) -> Steps:
        self.calls.append(f"reconfigure broker {' '.join(sorted(changed))}")
        yield UNFINISHED

    def take(self) -> list[str]:
        taken = self.calls[:]
        self.calls.clear()
        return taken


class Administered:
    """What handlers need of a broker, and a way to ask it. `restart` begins again on the same tree."""

    def __init__(self, *settings: str) -> None:
        self.clock = FakeClock()
        self.tree = FailingTree(MEMORY, self.clock.time_ms)
        weakref.finalize(self, self.tree.close)
        self.settings = settings
        self.host = Host()
        self.advertised = Endpoint("PLAINTEXT", *ADVERTISED)
        self.directories: list[DirectoryDescription] = []
        numbers = itertools.count(1)
        self._random_bytes = lambda size: next(numbers).to_bytes(size, "big")
        self.start()

    def start(self) -> None:
        self.broker_id = ME
        self.config = BrokerConfig(read_static(settings=self.settings))
        self.registry = Registry(self.tree, broker_id=ME, time_ms=self.clock.time_ms, random_bytes=self._random_bytes)
        self.registry.start(broker=BrokerInfo(ME, (Endpoint("PLAINTEXT", "10.0.0.1", 9092),)))
        self.topics = Topics(self.registry, self.config, self.host)
        self.configs = Configs(self.registry, self.config, self.host, ME)
        self.configs.load()
        self.admin_log = AdminLog(self.clock)
        self.logs = SimpleNamespace(describe=lambda: self.directories)

    def restart(self) -> None:
        for path in ("/controller", f"/brokers/ids/{ME}"):
            self.tree.delete(path)
        self.start()

    @property
    def metadata(self) -> MetadataSnapshot:
        return self.registry.snapshot

    @property
    def partitions(self) -> set[TopicPartition]:
        return self.host.served

    def partitions_of(self, topic: bytes, *, by_id: bool) -> Mapping[int, object]:
        assert not by_id
        return {each.partition: each for each in self.host.served if each.topic == topic.decode()}

    def ask(self, request: Any, version: int, answer: type[R]) -> R:
        """Hand a request to its handler as it arrives in `version`; the answer as the client of that version reads it."""
        api_key = type(request).API
        messages = load(api_key)
        assert messages.response is answer
        arrived = decode(messages.request, version, memoryview(bytes(encode(request, version))))
        answers: list[Any] = []
        asked = plain_request(api_key, version, advertised=self.advertised)
        steps = served_api(api_key).handler(self, arrived, asked, answers.append)
        if steps is not None:
            drain(steps)
        (response,) = answers
        return decode(answer, version, memoryview(bytes(encode(response, version))))


def code(number: int) -> str:
    """The name of an error code."""
    return ErrorCode(number).name
