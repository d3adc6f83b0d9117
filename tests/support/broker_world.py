"""A whole broker on fakes: a disk that forgets, a clock that stands still, threads that run when told, connections in memory.

world = BrokerWorld()
world.create_topic("t")
client = world.connect()
client.send(ProduceRequest(...), 9); (answer,) = client.answers()
"""

import hashlib
import struct
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from moldau.adapters.sqlite_file import MEMORY
from moldau.assembly.making import BrokerPorts, make_broker
from moldau.broker.broker import Broker
from moldau.broker.configs import Change, IncrementalChange, Resource, ResourceType
from moldau.broker.handlers.produce.walks import Walk
from moldau.broker.replicas.append_batch import AppendBatch
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.manager import LeaderState
from moldau.broker.replicas.partition_events import ReplicaRole
from moldau.cluster.controller.requests import PlannedTopic, TopicChoice, TopicSpec
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause, Suspension, drain
from moldau.ports.background import InlineBackground
from moldau.ports.transport import Network
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decoder, encode
from moldau.protocol.headers import decode_response_header, request_header
from moldau.protocol.messages import load
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder, iterate_log
from moldau.protocol.records.compression import Compression
from moldau.testing.background import FakeBackground, FakeWorkers
from moldau.testing.clock import FakeClock
from moldau.testing.disk import ForgetfulDisk
from moldau.testing.network import MemoryNetwork, MemoryTransport, Peer
from support.trees import AskedTree

R = TypeVar("R")
WAITS_MAX = 20_000
TURNS_MAX = 20
"""Turns of the loop in which a request is answered that needs nothing but the loop."""

CHECKED_MAX = 20
"""Partitions whose offsets are checked after each event."""

FEW_PARTITIONS = {"offsets_topic_num_partitions": 5, "transaction_state_log_num_partitions": 5}
"""Of the coordinators' topics, so that a test does not open fifty logs."""


class BrokerWorld:
    """One broker and its surroundings."""

    def __init__(
        self,
        *,
        immediate: bool = True,
        store: str = MEMORY,
        tree: type[AskedTree] = AskedTree,
        clock: FakeClock | None = None,
        network: Network | None = None,
        **settings: object,
    ) -> None:
        """`settings` with underscores for dots. `store`: path of the metadata store, for worlds that restart; `tree`: what keeps it.
        `clock` and `network` are those of several brokers.
        """
        self._tree = tree
        self.clock = FakeClock() if clock is None else clock
        self._network = MemoryNetwork(lambda call: self.clock.call_later(0.0, call)) if network is None else network
        self.disk = ForgetfulDisk(now_ms=self.clock.time_ms)
        self.background = FakeBackground(immediate=immediate)
        self.compute = FakeBackground(immediate=True)
        self.recompress = FakeBackground(immediate=True)
        self.workers = FakeWorkers(self.disk)
        self.store_path = store
        self.settings = [f"{name.replace('_', '.')}={value}" for name, value in {**FEW_PARTITIONS, **settings}.items()]
        self.directories = ["/data"]
        self._random = 0
        self.broker = self._start()

    def _start(self, *, adopt: bool = False) -> Broker:
        self.store = self._tree(self.store_path, self.clock.time_ms)
        broker = make_broker(
            BrokerConfig(read_static(settings=self.settings)),
            BrokerPorts(
                directories=self.directories,
                files=self.disk,
                clock=self.clock,
                background=self.background,
                compute=self.compute,
                recompress=self.recompress,
                coordination=self.store,
                network=lambda: self._network,
                random_bytes=self._random_bytes,
                workers=lambda: self.workers,
            ),
        )
        started: list[object] = []
        broker.start(BrokerInfo(broker.broker_id, (Endpoint("PLAINTEXT", "192.0.2.2", 9092),)), started.append, adopt=adopt)
        assert started == [None]
        return broker

    def restart(self, *, crash: bool = False, adopt: bool = False) -> None:
        """Stop the broker in order, or lose it together with what the disk had not synced; and start another over the same files."""
        if not crash:
            self.stop()
        self.store.close()
        self.workers.close()
        if crash:
            self.disk.crash()
        self.broker = self._start(adopt=adopt)

    def stop(self) -> None:
        """Stop the broker in order."""
        drain(self.broker.stop(InlineBackground(), lambda: False))

    def _random_bytes(self, count: int) -> bytes:
        self._random += 1
        return hashlib.sha256(str(self._random).encode()).digest()[:count]

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """A topic with configurations given with underscores; its id."""
        texts = [(key.replace("_", "."), str(value)) for key, value in configs.items()]
        outcomes = self.finish(self.broker.admin.create([TopicSpec(name, partitions, 1, configs=texts)]))
        plan = outcomes[name]
        assert isinstance(plan, PlannedTopic), plan
        return plan.topic_id

    def delete_topics(self, *names: str) -> None:
        """Delete topics, and what waits for that."""
        outcomes = self.finish(self.broker.admin.delete([TopicChoice(name) for name in names]))
        assert not any(isinstance(each, PeerError) for each in outcomes.values()), outcomes

    def configure(self, topic: str | None, **configs: object) -> None:
        """Set configurations, given with underscores, of a topic or of all brokers."""
        edits = [IncrementalChange(key.replace("_", "."), Change.SET, str(value)) for key, value in configs.items()]
        resource = Resource(ResourceType.BROKER, "") if topic is None else Resource(ResourceType.TOPIC, topic)
        self.finish(self.broker.configs.edit(resource, edits))

    def finish(self, steps: Generator[Pause, None, R]) -> R:
        """Run steps to their end, and the jobs that come into the background meanwhile and turns of the loop; their outcome."""
        jobs = self.background.jobs
        before = len(jobs)

        def waiting() -> Generator[Pause, None, R]:
            while True:
                try:
                    pause = next(steps)
                except StopIteration as end:
                    outcome: R = end.value
                    return outcome
                if isinstance(pause, Suspension):
                    resumed: list[bool] = []
                    pause.begin(lambda resumed=resumed: resumed.append(True))  # type: ignore[misc]
                    for _ in range(WAITS_MAX):
                        if resumed:
                            break
                        if len(jobs) > before:
                            self.background.run_next(before)
                        else:
                            self.clock.settle()
                    assert resumed, "nothing happens any more"
                yield None

        return drain(waiting())

    def partition(self, name: str, index: int = 0) -> HostedPartition:
        """What the broker leads."""
        found = self.broker.partitions.get(TopicPartition(name, index))
        assert found is not None
        return found

    def lack_replicas(self, name: str, *, lacks: bool = True) -> None:
        """Have each partition of a topic a second replica, which is not in sync: of its one replica one in sync is always enough. End that
        where it `lacks` none.
        """
        metadata, replicas = self.broker.metadata, self.broker.replicas
        settings = self.broker.topic_settings.of(metadata.topic_config(name))
        for index in range(len(metadata.topics[name].partitions)):
            found, me = self.partition(name, index), self.broker.broker_id
            state = LeaderState(found.machine.leader_epoch, found.machine.state_version + 1, (me, me + 1) if lacks else (me,), (me,))
            replicas.become_leader(found.topic_partition, state, found.topic_id, settings)

    def append(self, batch: AppendBatch) -> None:
        """Append a batch past all requests, with acks 1."""
        self.broker.replicas.append([batch], 1, self.clock.time_ms(), lambda: None)
        self.broker.replicas.write_staged()
        assert batch.in_log

    def check_replicas(self) -> None:
        """Between two events nothing is staged, and the offsets of each partition are in order (of a few partitions)."""
        replicas = self.broker.replicas
        assert (replicas.appends.dirty, replicas.appends.unwritten) == ([], []), "staged between turns"
        for partition in replicas.hosted.values() if len(replicas.hosted) <= CHECKED_MAX else ():
            log, machine = partition.log, partition.machine
            assert log.start_offset <= log.high_watermark <= log.log_end_offset == log.staged_end_offset
            assert machine.high_watermark <= machine.committed_offset <= machine.log_end_offset
            assert machine.flushed_offset <= machine.log_end_offset
            assert partition.staged_bytes == 0
            assert not partition.is_led or (
                machine.role is ReplicaRole.LEADER and replicas.partitions.get(partition.topic_partition) is partition
            )

    def request_bytes(self) -> int:
        """Memory that requests take: buffers of connections, and all that produced batches keep alive which wait for a thread."""
        views = list[memoryview]()
        for thread in (self.compute, self.recompress):
            for work, done in thread.jobs:
                walk = getattr(work, "__self__", None)
                if isinstance(walk, Walk):
                    assert isinstance(done, partial)
                    views += [walk.batch, done.args[0].records]
        buffers = {id(view.obj): memoryview(view.obj).nbytes for view in views}
        return sum(buffers.values()) + sum(connection.held_bytes for connection in self.broker.connections)

    def connect(self, *, window: int = 1 << 20, piece: int = 1 << 16, listener: str = "PLAINTEXT") -> "Client":
        """A new connection. `piece`: bytes that the broker gets at a time."""
        transport = MemoryTransport(lambda callback: self.clock.call_later(0.0, callback), window=window)
        return Client(self, Peer(transport, self.broker.accept(transport, listener), piece))


@dataclass
class Answer:
    """A response as it came."""

    correlation_id: int
    body: Any


@dataclass
class Client:
    """Sends requests, with rising correlation ids, and reads answers; any answer that is out of order fails."""

    world: BrokerWorld
    peer: Peer
    client_id: str | None = "tests"
    expected: list[tuple[int, ApiKey, int]] = field(default_factory=list)
    correlation_id: int = 0
    received: bytes = b""

    def frame(self, request: Any, version: int, *, answered: bool = True) -> bytes:
        """A request's bytes, with its size; remembers that an answer is due."""
        self.correlation_id += 1
        if answered:
            self.expected.append((self.correlation_id, request.API, version))
        payload = request_header(request.API, version, self.correlation_id, self.client_id) + encode(request, version)
        return struct.pack(">i", len(payload)) + payload

    def send(self, request: Any, version: int, *, answered: bool = True) -> None:
        self.peer.send(self.frame(request, version, answered=answered))
        self.world.check_replicas()

    def ask(self, request: Any, version: int) -> Any:
        """Send, and take the one answer."""
        self.send(request, version)
        answers = self.answers()
        for _ in range(TURNS_MAX):
            if answers:
                break
            self.world.clock.settle()
            answers = self.answers()
        (answer,) = answers
        return answer.body

    def answers(self) -> list[Answer]:
        """What has come so far, decoded."""
        self.received += self.peer.receive()
        self.world.check_replicas()
        found = []
        while len(self.received) >= 4:
            (size,) = struct.unpack_from(">i", self.received)
            if len(self.received) < 4 + size:
                break
            frame, self.received = self.received[4 : 4 + size], self.received[4 + size :]
            correlation_id, api_key, version = self.expected.pop(0)
            got, position = decode_response_header(frame, api_key, version)
            assert got == correlation_id, f"answer to {got} where that to {correlation_id} was due"
            body, end = decoder(load(api_key).response, version)(memoryview(frame), position)
            assert end == len(frame)
            found.append(Answer(got, body))
        return found

    @property
    def closed(self) -> bool:
        """Whether the broker has closed the connection."""
        self.world.clock.settle()
        return self.peer.transport.closed

    # Requests that most tests need

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = 1, version: int = 9) -> Any:
        """Produce one batch; the partition's response."""
        answer = self.ask(produce_request(topic, batch(self.world, *values), partition=partition, acks=acks), version)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, **options: Any) -> Any:
        """Fetch from one partition at once; the partition's response."""
        version = options.pop("version", 12)
        answer = self.ask(fetch_request(topic, offset, **{"max_wait_ms": 0, **options}), version)
        return answer.responses[0].partitions[0]

    def values(self, topic: str, offset: int = 0, **options: Any) -> list[bytes | None]:
        """The values that one fetch gives."""
        return values_of(self.fetch(topic, offset, **options).records)


def batch(
    world: BrokerWorld, *values: bytes, key: bytes | None = None, compression: Compression = Compression.NONE, **producer: Any
) -> bytes:
    """A batch of records with the clock's time."""
    builder = RecordBatchBuilder(compression=compression, **producer)
    for value in values:
        builder.append(world.clock.time_ms(), key, value)
    return builder.build()


def produce_request(
    topic: str | bytes, records: bytes | None, *, partition: int = 0, acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    """One batch for one partition; `topic` as bytes is an id."""
    data = [PartitionProduceData(partition, records)]
    name = (
        TopicProduceData(topic_id=topic, partition_data=data) if isinstance(topic, bytes) else TopicProduceData(topic, partition_data=data)
    )
    return ProduceRequest(transactional_id, acks, 30_000, [name])


def fetch_request(
    topic: str | bytes,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    **partition_fields: Any,
) -> FetchRequest:
    """One partition of one topic; `topic` as bytes is an id."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **partition_fields)
    name = FetchTopic(topic_id=topic, partitions=[wanted]) if isinstance(topic, bytes) else FetchTopic(topic, partitions=[wanted])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[name])


def values_of(records: Iterable[int] | None) -> list[bytes | None]:
    """The values in a fetched stretch of a log."""
    return [record.value for record in iterate_log(memoryview(bytes(records or b"")), max_decompressed_bytes=1 << 24)]
