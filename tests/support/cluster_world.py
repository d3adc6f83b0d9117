"""Several whole brokers on fakes in one process: one coordination tree, one network and one clock, a disk each.

    cluster = ClusterWorld(1, 2, 3)
    cluster.until(lambda: cluster.agrees())
    cluster.kill(1)                       # as kill -9; its session ends when `expire` says so
    cluster.start(1)
    answer = cluster.ask(2, MetadataRequest(topics=None), 12)

Nothing happens but in `advance`, `settle` and `until`.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from moldau.assembly.making import BrokerPorts, make_broker
from moldau.broker.broker import Broker
from moldau.cluster.snapshot import BrokerInfo, Endpoint, PartitionInfo
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.steps import drain
from moldau.ports.background import InlineBackground
from moldau.ports.transport import ConnectAttempt, ConnectError, Receiver, Transport
from moldau.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.rpc import Rpc
from moldau.testing.background import FakeBackground, FakeWorkers
from moldau.testing.clock import FakeClock, FakeTimer
from moldau.testing.coordination import FakeSession, FakeTree
from moldau.testing.disk import ForgetfulDisk
from moldau.testing.network import MemoryConnectAttempt, MemoryNetwork

LATENCY_S = 0.002
"""Of the tree, both ways together."""
STEP_S = 0.001
LISTENER = "PLAINTEXT"
PORT = 9092
STEPS_MAX = 20_000
SETTLED_S = 0.1


class ClusterWorld:
    """See the module."""

    directories: Sequence[str] = ("/data",)
    """Of each broker for its logs."""

    def __init__(self, *broker_ids: int, **settings: object) -> None:
        """`settings` of all brokers, with underscores for dots."""
        self.clock = FakeClock()
        self.tree = FakeTree(self.clock)
        self.network = MemoryNetwork(lambda call: self.clock.call_later(0.0, call))
        self.settings = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self.disks = {broker_id: ForgetfulDisk(now_ms=self.clock.time_ms) for broker_id in broker_ids}
        self.processes: dict[int, BrokerProcess] = {}
        self.ended: list[BrokerProcess] = []
        self._random = 0
        for broker_id in broker_ids:
            self.start(broker_id)
        self.until(lambda: all(process.is_serving for process in self.processes.values()))
        self.settle()

    # Brokers

    def start(self, broker_id: int) -> "BrokerProcess":
        """Start a broker, over the disk of the one before."""
        assert broker_id not in self.processes, f"broker {broker_id} runs"
        process = self.processes[broker_id] = BrokerProcess(self, broker_id, self.disks[broker_id])
        process.start()
        return process

    def stop(self, broker_id: int) -> None:
        """Stop a broker in order, and end its session."""
        process = self.processes.pop(broker_id)
        process.stop()
        self.ended.append(process)
        self.settle()

    def kill(self, broker_id: int, *, expires: bool = True) -> "BrokerProcess":
        """End a broker at once; what it has written stays on its disk. `expires`: whether its session ends with it."""
        process = self.processes.pop(broker_id)
        process.kill()
        self.ended.append(process)
        if expires:
            process.session.expire()
        return process

    def cut(self, broker_id: int, *others: int) -> None:
        """Have a broker get nothing over connections that it makes to others, old or new, while those that they make work."""
        for other in others:
            self.processes[broker_id].lose(f"b{other}")

    def heal(self, broker_id: int) -> None:
        """End that."""
        self.processes[broker_id].find_all()

    def broker(self, broker_id: int) -> Broker:
        """One that runs."""
        return self.processes[broker_id].broker

    @property
    def controller_id(self) -> int:
        """The broker that acts as controller; one does."""
        (found,) = [broker_id for broker_id, process in self.processes.items() if process.broker.metadata.controller_id == broker_id]
        return found

    def random_bytes(self, count: int) -> bytes:
        """The next of a fixed row."""
        self._random += 1
        return hashlib.sha256(str(self._random).encode()).digest()[:count]

    # Time

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.clock.advance(STEP_S)
            self.network.move()

    def skip(self, seconds: float) -> None:
        """Let much time pass, in which connections move less often."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.settle()

    def settle(self) -> None:
        """Let happen what follows at once from what has happened."""
        self.advance(SETTLED_S)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until it is so."""
        for _ in range(STEPS_MAX):
            if condition():
                return
            self.advance(STEP_S)
        raise AssertionError("it did not happen")

    # Clients

    def ask(self, broker_id: int, request: Any, version: int) -> Any:
        """Send a request to a broker over a connection of its own; the response."""
        call = self.send(broker_id, request, version)
        self.until(lambda: call.response is not None)
        return call.response

    def send(self, broker_id: int, request: Any, version: int) -> "ClientCall":
        """The same, and do not wait for the response."""
        call = ClientCall(request, version)
        self.network.connect(f"b{broker_id}", PORT, call.accept, call.failed)
        return call

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 3, **configs: str) -> bytes:
        """Have the controller create a topic; its id."""
        settings = [CreatableTopicConfig(key, value) for key, value in configs.items()]
        topic = CreatableTopic(name, partitions, replication_factor, configs=settings)
        (created,) = self.ask(self.controller_id, CreateTopicsRequest([topic]), 7).topics
        assert created.error_code == 0, created
        topic_id: bytes = created.topic_id
        return topic_id

    # What can be seen

    def partition(self, topic: str, index: int = 0, *, on: int | None = None) -> PartitionInfo:
        """A partition as a broker knows it, the controller if none is named."""
        return self.broker(self.controller_id if on is None else on).metadata.topics[topic].partitions[index]

    def views(self) -> dict[int, object]:
        """What each broker would answer clients: controller, live brokers, partitions."""
        return {
            broker_id: (
                process.broker.metadata.controller_id,
                sorted(process.broker.metadata.brokers),
                {name: (topic.topic_id, topic.partitions) for name, topic in process.broker.metadata.topics.items()},
            )
            for broker_id, process in self.processes.items()
        }

    def agrees(self) -> bool:
        """Whether all brokers know the same of the cluster, of which all are part."""
        first, *others = self.views().values()
        live = [sorted(process.broker.metadata.brokers) for process in self.processes.values()]
        return all(other == first for other in others) and all(each == sorted(self.processes) for each in live)


class BrokerProcess:
    """One run of a broker, and the ends of its connections."""

    def __init__(self, cluster: ClusterWorld, broker_id: int, disk: ForgetfulDisk) -> None:
        self.broker_id = broker_id
        self.host = f"b{broker_id}"
        self.is_serving = False
        self.is_over = False
        self.is_hung = False
        self.clock = ProcessClock(self, cluster.clock)
        self.session: FakeSession = cluster.tree.session(LATENCY_S)
        self.transports: list[Transport] = []
        self._outgoing: list[tuple[str, Transport]] = []
        """Connections that it has made, by host."""
        self._lost: dict[str, None] = {}
        """Hosts from which it gets nothing."""
        self._cluster = cluster
        self._disk = disk
        self._held: list[Callable[[], object]] = []
        background = FakeBackground(immediate=True)
        workers = FakeWorkers(disk)
        settings = [f"broker.id={broker_id}", f"listeners={LISTENER}://{self.host}:{PORT}", *cluster.settings]
        self.broker = make_broker(
            BrokerConfig(read_static(settings=settings)),
            BrokerPorts(
                directories=list(cluster.directories),
                files=disk,
                clock=self.clock,
                background=background,
                compute=background,
                recompress=background,
                coordination=self.session,
                network=lambda: self,
                random_bytes=cluster.random_bytes,
                workers=lambda: workers,
            ),
        )

    def start(self) -> None:
        """Begin to start."""
        endpoint = Endpoint(LISTENER, self.host, PORT)
        self.broker.advertised = {LISTENER: endpoint}
        self.broker.start(BrokerInfo(self.broker_id, (endpoint,)), self._started)

    def _started(self, error: Exception | None) -> None:
        if error is not None:
            raise error
        self.is_serving = True
        self._cluster.network.listen(self.host, PORT, self._accept)

    def stop(self) -> None:
        """Stop in order."""
        hand_over = self.broker.membership.hand_over()
        self._cluster.until(lambda: hand_over is None or hand_over.is_over)
        self._cluster.network.stop_listening(self.host, PORT)
        self.broker.finish_connections()
        self._cluster.settle()
        drain(self.broker.stop(InlineBackground(), lambda: False))
        self.session.close()
        self._end()

    def kill(self) -> None:
        """Nothing of it happens any more."""
        if self.is_serving:
            self._cluster.network.stop_listening(self.host, PORT)
        self._end()
        self.session.suspend()
        self._disk.process_ended()

    def _end(self) -> None:
        self.is_over = True
        for transport in self.transports:
            transport.abort()

    def hang(self) -> None:
        """Have nothing of it happen until `resume`, while its session lives and its connections stay."""
        self.is_hung = True
        for transport in self.transports:
            transport.pause_reading()

    def resume(self) -> None:
        """Do what was due meanwhile."""
        self.is_hung = False
        held, self._held = self._held, []
        for call in held:
            call()
        for transport in self.transports:
            transport.resume_reading()

    def call(self, callback: Callable[[], object]) -> None:
        """Make a call that is due."""
        if self.is_hung:
            self._held.append(lambda: self.call(callback))
        elif not self.is_over:
            callback()

    def lose(self, host: str) -> None:
        """Get nothing over connections that it makes to a host."""
        self._lost[host] = None
        for address, transport in self._outgoing:
            if address == host:
                transport.pause_reading()

    def find_all(self) -> None:
        """End that."""
        self._lost.clear()
        for _, transport in self._outgoing:
            transport.resume_reading()

    # Its side of connections

    def _accept(self, transport: Transport) -> Receiver:
        return self._own(transport, self.broker.accept(transport, LISTENER))

    def _own(self, transport: Transport, receiver: Receiver) -> Receiver:
        self.transports.append(transport)
        if self.is_hung:
            transport.pause_reading()
        return receiver

    def connect(
        self, host: str, port: int, accept: Callable[[Transport], Receiver], failed: Callable[[ConnectError], object]
    ) -> ConnectAttempt:
        """As a network of its own."""

        def connected(transport: Transport) -> Receiver:
            self._outgoing.append((host, transport))
            return self._own(transport, accept(transport))

        if host in self._lost:
            return MemoryConnectAttempt()  # nothing becomes of it
        return self._cluster.network.connect(host, port, connected, lambda error: self.call(lambda: failed(error)))


class ProcessClock:
    """A clock whose calls end with the process, and wait while it hangs."""

    def __init__(self, process: BrokerProcess, clock: FakeClock) -> None:
        self._process = process
        self._clock = clock
        self.time_ms = clock.time_ms
        self.monotonic = clock.monotonic

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        """As the clock of all, within the process."""
        timer = FakeTimer(callback)

        def due() -> None:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

        self._clock.call_later(delay_s, lambda: self._process.call(due))
        return timer


class ClientCall:
    """A connection for one request, and its response once there is one."""

    def __init__(self, request: Any, version: int) -> None:
        self.response: Any = None
        self.is_lost = False
        """Whether the connection has ended."""
        self._request = request
        self._version = version
        self._rpc = Rpc("tests", 1 << 24, 2)
        self._transport: Transport | None = None

    def accept(self, transport: Transport) -> Receiver:
        self._transport = transport
        transport.send([self._rpc.hello()])
        return self

    def failed(self, error: ConnectError) -> None:
        raise error

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._rpc.get_buffer()

    def buffer_updated(self, count: int) -> None:
        assert self._transport is not None
        answered = self._rpc.buffer_updated(count)
        if answered is not None:
            self.response = answered.response
            self._transport.abort()
        elif self._rpc.is_open and self._rpc.oldest is None:
            self._transport.send([self._rpc.send(self._request.API, self._request, version=self._version)[1]])

    def queue_drained(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
