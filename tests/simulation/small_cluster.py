"""Three simulated brokers and the verbs that named scenarios are written with.

Broker 1 is controller; topic t has one partition, which broker 2 leads and brokers 1 and 3 follow. Invariants are checked after every step.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from moldau.broker.broker import Broker
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition import Partition
from moldau.cluster import znodes
from moldau.cluster.znodes import PartitionState, decode_controller, decode_epoch
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import ErrorCode, known_error
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Request
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from moldau.protocol.records.batch import RecordBatchBuilder, iterate_log
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.producer import Delivery, SimulatedProducer
from moldau.testing.simulation.cluster_invariants import ClusterInvariants
from moldau.testing.simulation.network import ConnectionEnd
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.probes import SimulatedProbe
from moldau.testing.simulation.process import PORT, Host
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_invariants import TreeInvariants
from moldau.testing.simulation.tree_view import PartitionInTree, partitions_in
from moldau.testing.simulation.wire import Matches, Wire
from moldau.wire.brokers import Brokers, check

IDS = (1, 2, 3)
CONTROLLER, LEADER, FOLLOWER = IDS
T0 = TopicPartition("t", 0)
SEGMENT = f"/data/t-0/{0:020}.log"
WAIT_S = 10.0
"""Of virtual time: what has not come by then does not come."""
SETTINGS: Mapping[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1000,
    "zookeeper.session.timeout.ms": 3000,
}
CONTROL = (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)
"""What controllers send."""


class Cluster:
    """See the module."""

    def __init__(self, *, checks: bool = True, racks: bool = False, **settings: object) -> None:
        """Without `checks` committed records may be lost, as by unclean elections. With `racks` each broker has its own: r1, r2, r3.

        A setting that begins with ``broker_3_`` is of that broker.
        """
        given: dict[str, object] = {**SETTINGS}
        own: dict[int, dict[str, object]] = {broker_id: {"broker.rack": f"r{broker_id}"} if racks else {} for broker_id in IDS}
        for name, value in settings.items():
            if name.startswith("broker_"):
                _, number, rest = name.split("_", 2)
                own[int(number)][rest.replace("_", ".")] = value
            else:
                given[name.replace("_", ".")] = value
        self.sim = Simulation(Options(1, brokers=3, settings=given, tree_latency_s=0.002, tree_linger_s=3.0, session_s=3.0))
        self.network = self.sim.network
        self.wire = Wire(self.sim.network)
        self.left: list[int] = []
        """Brokers that have left the in-sync set of t, in this order."""
        self.lossy: dict[int, None] = {}
        """Brokers that have lost something, until they leave the in-sync set."""
        self._holds: list[Matches] = []
        self._isr: tuple[int, ...] = ()
        self.tree = TreeInvariants(self.sim.tree, self.sim.hosts)
        self.sim.tree.nodes.on_written.append(self._written)
        self.invariants = None
        if checks:
            self.invariants = ClusterInvariants(self.sim.hosts, self.tree, lambda host: self.sim.hosts.index(host) + 1 in self.lossy)
        for host, broker_id in zip(self.sim.hosts, IDS, strict=True):
            host.settings = {**host.settings, **own[broker_id]}

    def run(self, main: "Callable[[Cluster], Coroutine[Any, Any, None]]") -> None:
        """Carry out a scenario in a new cluster."""

        async def whole() -> None:
            for broker_id in IDS:  # the first is controller
                self.start(broker_id)
                await self.until(lambda: self._know(broker_id))  # noqa: B023
            self.admin = SimulatedAdmin(self.sim.client())
            self.producer = SimulatedProducer(self.sim.client("producer"))
            await self.create("t", (LEADER, CONTROLLER, FOLLOWER))
            await self.in_sync(*IDS)
            await main(self)
            if self.invariants is not None:
                self.invariants.check_all()

        try:
            with SimulatedProbe(1, ()) as probe:
                self.reached = probe.counts
                self.sim.run(whole())
        finally:
            self.sim.close()

    def _know(self, brokers: int) -> bool:
        """Whether so many brokers run, and know each other and the controller."""
        processes = [host.process for host in self.sim.hosts[:brokers]]
        serve = all(process is not None and process.is_serving for process in processes)
        return serve and all(len(self.broker(broker_id).metadata.brokers) == brokers for broker_id in IDS[:brokers])

    # Waiting

    async def until(self, holds: Callable[[], bool], limit_s: float = WAIT_S) -> None:
        """Let time pass until something holds. TimeoutError."""
        await self.sim.until(holds, limit_s)

    async def in_sync(self, *broker_ids: int, topic: str = "t") -> None:
        """Wait until these, and no others, are in sync, in the tree and as far as the leader knows."""
        wanted = sorted(broker_ids)
        await self.until(lambda: self._isr_of(topic) == wanted == sorted(self._known_isr(topic)))

    def _isr_of(self, topic: str) -> list[int]:
        state = self.partition(topic).state
        return [] if state is None else sorted(state.isr)

    def _known_isr(self, topic: str) -> tuple[int, ...]:
        leader = self.state(topic).leader
        broker = self.host(leader).broker if leader > 0 else None
        hosted = None if broker is None else broker.replicas.hosted.get(TopicPartition(topic, 0))
        return () if hosted is None else hosted.machine.isr

    async def led_by(self, broker_id: int) -> None:
        """Wait until a broker leads t, and knows it."""
        await self.until(lambda: self.state().leader == broker_id and self.leads(broker_id))

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.sleep(seconds)

    # What there is

    def host(self, broker_id: int) -> Host:
        """A broker's host."""
        return self.sim.hosts[broker_id - 1]

    def broker(self, broker_id: int) -> Broker:
        """A broker that runs."""
        broker = self.host(broker_id).broker
        assert broker is not None, f"broker {broker_id} does not run"
        return broker

    def hosted(self, broker_id: int, topic: str = "t") -> HostedPartition:
        """A replica with an open log."""
        return self.broker(broker_id).replicas.hosted[TopicPartition(topic, 0)]

    def machine(self, broker_id: int) -> Partition:
        """What a broker knows of t."""
        return self.hosted(broker_id).machine

    def log(self, broker_id: int) -> PartitionLog:
        """A broker's log of t."""
        return self.hosted(broker_id).log

    def end(self, broker_id: int) -> int:
        """Where a broker's log of t ends; -1 while it is not open."""
        broker = self.host(broker_id).broker
        hosted = None if broker is None else broker.replicas.hosted.get(T0)
        return -1 if hosted is None else hosted.log.log_end_offset

    def leads(self, broker_id: int) -> bool:
        """Whether a broker leads t, as far as it knows."""
        broker = self.host(broker_id).broker
        return broker is not None and broker.partitions.get(T0) is not None

    def partition(self, topic: str = "t") -> PartitionInTree:
        """Partition 0 of a topic as the tree has it."""
        (found,) = [each for each in partitions_in(self.sim.tree) if (each.topic, each.number) == (topic, 0)]
        return found

    def state(self, topic: str = "t") -> PartitionState:
        """Its state."""
        state = self.partition(topic).state
        assert state is not None, f"{topic} has no state"
        return state

    def isr(self) -> list[int]:
        """The in-sync set of t in the tree."""
        return sorted(self.state().isr)

    def controller(self) -> int:
        """The id of the broker whose node says so; 0 while there is none."""
        node = self.sim.tree.get(znodes.CONTROLLER)
        return 0 if node is None else decode_controller(znodes.CONTROLLER, node.data)

    def controller_epoch(self) -> int:
        """The epoch of the last controller."""
        node = self.sim.tree.get(znodes.CONTROLLER_EPOCH)
        assert node is not None
        return decode_epoch(znodes.CONTROLLER_EPOCH, node.data)

    def known_epoch(self, broker_id: int) -> int:
        """The leader epoch of t that a broker answers clients."""
        return self.broker(broker_id).metadata.topics["t"].partitions[0].leader_epoch

    def registered(self) -> list[int]:
        """Brokers that are registered."""
        return sorted(map(int, self.sim.tree.children(znodes.BROKER_IDS)))

    def values(self, broker_id: int, topic: str = "t") -> list[bytes | None]:
        """All that a broker's log has."""
        log = self.hosted(broker_id, topic).log
        found: list[bytes | None] = []
        offset, before = log.start_offset, -1
        while offset < log.log_end_offset and offset != before:  # a read ends with its segment, and a log perhaps with markers
            before = offset
            read = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
            assert read.records is not None
            data = read.records.file.pread(read.records.length, read.records.position)
            read.records.release()
            for record in iterate_log(memoryview(data), max_decompressed_bytes=1 << 24):
                if record.offset >= offset:
                    found.append(record.value)
                    offset = record.offset + 1
        return found

    async def ends_with(self, *values: bytes) -> None:
        """In the end all replicas are in sync, and have exactly these records."""
        await self.in_sync(*IDS)
        await self.until(lambda: all(self._has_all(broker_id, list(values)) for broker_id in IDS))

    def _has_all(self, broker_id: int, values: list[bytes | None]) -> bool:
        """Whether a replica is open, has these records, and shows them all."""
        if self.end(broker_id) < 0:
            return False
        return self.values(broker_id) == values and self.log(broker_id).high_watermark == self.end(broker_id)

    # Clients

    async def create(self, topic: str, replicas: Sequence[int], **configs: object) -> None:
        """Create a topic with one partition on these brokers, of which the first leads."""
        settings = [CreatableTopicConfig(name.replace("_", "."), str(value)) for name, value in configs.items()]
        new = CreatableTopic(topic, -1, -1, [CreatableReplicaAssignment(0, list(replicas))], settings)
        await self._change(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new], 10_000), "topics")
        await self.until(lambda: all(self._has(broker_id, topic) for broker_id in replicas))

    def _has(self, broker_id: int, topic: str) -> bool:
        broker = self.host(broker_id).broker
        return broker is None or TopicPartition(topic, 0) in broker.replicas.hosted

    async def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the tree has nothing of it."""
        await self._change(ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState(topic)], [topic], 10_000), "responses")
        await self.until(lambda: topic not in self.sim.tree.children(znodes.TOPICS))
        self.admin.brokers.forget_topic(topic)
        self.producer.brokers.forget_topic(topic)

    async def _change(self, api_key: ApiKey, request: object, results: str) -> None:
        """Have the controller, whichever broker that is, carry out a request about one topic."""
        brokers = self.admin.brokers

        async def ask() -> None:
            response = await (await brokers.controller()).send(api_key, request, timeout_s=WAIT_S)
            check(getattr(response, results)[0].error_code, api_key.name)

        await brokers.insist(ask, WAIT_S)

    async def write(self, *values: bytes, topic: str = "t") -> None:
        """Have these acknowledged by all in sync, one after the other."""
        for value in values:
            await asyncio.wait_for(self.write_later(value, topic=topic), WAIT_S)

    def write_later(self, value: bytes, *, topic: str = "t") -> Delivery:
        """Send a record; its acknowledgement may come later."""
        return asyncio.ensure_future(self.producer.send_and_wait(topic, value, partition=0))

    async def append(self, broker_id: int, *values: bytes, acks: int = 1) -> ErrorCode:
        """Send a broker one batch, without another attempt; what it answers."""
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(self.sim.schedule.time_ms(), None, value)
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, builder.build())])]
        response = await self.ask(broker_id, ApiKey.PRODUCE, ProduceRequest(None, acks, 5000, data), VersionRange(12, 12))
        return known_error(response.responses[0].partition_responses[0].error_code)

    async def ask(self, broker_id: int, api_key: ApiKey, request: object, version: VersionRange | None = None) -> Any:
        """Send a broker a request; its response."""
        connection = await Brokers(self.sim.client()).connection((self.host(broker_id).name, PORT))
        return await connection.send(api_key, request, timeout_s=WAIT_S, version=version)

    async def fetch(self, broker_id: int, offset: int, rack: str) -> Any:
        """Fetch from t as a consumer in a rack; what the broker answers for the partition."""
        topic = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 16)])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], rack_id=rack)
        response = await self.ask(broker_id, ApiKey.FETCH, request, VersionRange(12, 12))
        return response.responses[0].partitions[0]

    async def move(self, *replicas: int) -> None:
        """Give t these replicas, and wait until it has them."""
        await self.admin.move_partition(T0, replicas)
        await self.until(lambda: self.partition().replicas == replicas and not self.partition().is_moving)

    async def elect(self, broker_id: int) -> None:
        """Have a broker lead t that is in sync, without any of them ending."""
        await self.admin.move_partition(T0, [broker_id, *(each for each in self.partition().replicas if each != broker_id)])
        await self.until(lambda: self.partition().replicas[0] == broker_id and not self.partition().is_moving)
        await self.admin.elect_preferred("t", [0])
        await self.until(lambda: self.state().leader == broker_id)

    # Processes

    def start(self, *broker_ids: int) -> None:
        """Start brokers."""
        for broker_id in broker_ids:
            self.host(broker_id).start()

    def kill(self, *broker_ids: int) -> None:
        """End processes at once."""
        for broker_id in broker_ids:
            self.host(broker_id).kill()

    def power_cut(self, *broker_ids: int) -> None:
        """End processes at once, and lose all that they have not synced."""
        for broker_id in broker_ids:
            self.lossy[broker_id] = None
            self.host(broker_id).kill()
            self.host(broker_id).disk.crash()

    def lose_a_bit(self, broker_id: int, text: bytes) -> None:
        """End a process at once, and have the disk keep another bit of a record in t that was not synced."""
        self.lossy[broker_id] = None
        self.kill(broker_id)
        self.flip(broker_id, SEGMENT, text, 0)

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        self.stop_later(broker_id)
        await self.until(lambda: self.host(broker_id).process is None)

    def stop_later(self, broker_id: int) -> None:
        """Begin to."""
        process = self.host(broker_id).process
        assert process is not None
        process.stop()

    def flip(self, broker_id: int, path: str, text: bytes, bit: int) -> None:
        """Change a bit of the last byte of some text in a file."""
        disk = self.host(broker_id).disk
        disk.flip(path, disk.contents(path).index(text) + len(text) - 1, bit)

    # The tree

    def session(self, broker_id: int) -> Any:
        """A broker's session: to be cut off, to expire, to hold requests, to answer late."""
        process = self.host(broker_id).process
        assert process is not None
        return process.session

    def when_written(self, holds: Callable[[Request], bool], call: Callable[[], object]) -> None:
        """Once something is written to the tree, before that is answered, make a call; once."""
        listeners = self.sim.tree.nodes.on_written

        def look(request: Request, _session_id: int) -> None:
            if look in listeners and holds(request):
                listeners.remove(look)
                self.sim.clock.call_later(0.0, call)

        listeners.append(look)

    def _written(self, *_: object) -> None:
        state = self.tree.states.get(("t", 0))
        isr = () if state is None else state.isr
        if isr != self._isr:
            self.left += (each for each in self._isr if each not in isr)
            self._isr = isr
            for broker_id in [each for each in self.lossy if each not in isr]:
                del self.lossy[broker_id]

    # The network

    def requests(self, *kinds: ApiKey, by: int | None = None, to: int | None = None) -> Matches:
        """Requests of some kinds, as something to hold."""
        each = [self.wire.request(kind, by=self._name(by), to=self._name(to)) for kind in kinds]
        return lambda end: any(matches(end) for matches in each)

    def responses(self, *kinds: ApiKey, by: int | None = None, to: int | None = None) -> Matches:
        """Responses of some kinds, as something to hold."""
        each = [self.wire.response(kind, by=self._name(by), to=self._name(to)) for kind in kinds]
        return lambda end: any(matches(end) for matches in each)

    def _name(self, broker_id: int | None) -> str | None:
        return None if broker_id is None else self.host(broker_id).name

    def hold(self, *matches: Matches) -> None:
        """Keep what arrives and matches, besides what is held already."""
        self._holds += matches
        self._hold()

    def release(self, *matches: Matches) -> None:
        """Let these arrive; without any, all."""
        self._holds = [each for each in self._holds if matches and each not in matches]
        self.network.release()
        self._hold()

    def _hold(self) -> None:
        if holds := tuple(self._holds):
            self.network.hold(lambda end: any(matches(end) for matches in holds))

    def damage(self, text: bytes, *, by: int, to: int) -> Callable[[], None]:
        """Have some bytes arrive damaged whenever one broker sends them to another, until what this returns is called."""
        see = self.network.on_arriving
        assert see is not None

        def arrive(end: ConnectionEnd) -> None:
            sent = end.other.in_flight
            if (end.other.party.host, end.party.host) == (self._name(by), self._name(to)) and (at := sent.find(text)) >= 0:
                sent[at] ^= 1
            see(end)

        def mend() -> None:
            self.network.on_arriving = see

        self.network.on_arriving = arrive
        return mend

    def cut(self, sender: int, receiver: int) -> None:
        """Let nothing of one broker reach another, one way, until `mend`."""
        self.network.block(self.host(sender).name, self.host(receiver).name)

    def isolate(self, broker_id: int) -> None:
        """Cut a broker off from the others, both ways."""
        for other in IDS:
            if other != broker_id:
                self.cut(broker_id, other)
                self.cut(other, broker_id)

    def mend(self) -> None:
        """End all cuts."""
        for one in self.sim.hosts:
            for other in self.sim.hosts:
                self.network.unblock(one.name, other.name)
