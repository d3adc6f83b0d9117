"""Several brokers on fakes with one clock and one network, without a controller over them: a test says who leads which epoch.

world = ReplicaWorld(3)
world.lead(1)                      # broker 1 leads t-0 in the next epoch, 2 and 3 follow
world.produce(1, b"a", acks=-1)
world.run()

Each has a coordination tree of its own. The leader's has the state of the partition, as a controller would have written it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from moldau.adapters.sqlite_file import MEMORY
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.manager import FollowerState, LeaderState
from moldau.broker.replicas.partition import Partition
from moldau.cluster import znodes
from moldau.cluster.changes import Change
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import BrokerNode, PartitionState, decode_state, encode_broker, encode_controller, encode_state
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Delete
from moldau.protocol.messages.fetch import ReplicaState
from moldau.protocol.records.batch import iterate_log
from moldau.testing.clock import FakeClock
from moldau.testing.network import MemoryNetwork
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request

ZERO = TopicPartition("t", 0)
TOPIC_ID = b"i" * 16
STATE = znodes.partition_state("t", 0)
MOVES = 60
"""Reads of all links in `run`: enough for a fetch and what follows from it several times."""


class ReplicaWorld:
    """See the module. Brokers are numbered from 1 and reached at 10.0.0.N:9092."""

    def __init__(self, count: int, *, partitions: int = 1, **settings: Any) -> None:
        self.clock = FakeClock()
        self.network = MemoryNetwork(lambda callback: self.clock.call_later(0.0, callback))
        self.ids = tuple(range(1, count + 1))
        self.partitions = partitions
        self.epoch = 4
        self.answers: dict[int, list[Callable[[CoordinationError], object]]] = {}
        self.worlds: dict[int, BrokerWorld] = {}
        for each in self.ids:
            self.worlds[each] = BrokerWorld(clock=self.clock, network=self.network, store=MEMORY, **{"broker_id": each, **settings})
        for each, world in self.worlds.items():
            self._introduce(each, world)

    def _introduce(self, broker_id: int, world: BrokerWorld) -> None:
        """Have a broker know and reach the others."""
        self.network.listen(f"10.0.0.{broker_id}", 9092, lambda transport: world.broker.accept(transport, "PLAINTEXT"))
        cache, store = world.broker.cache, world.store
        store.multi([Delete(znodes.CONTROLLER), Create(znodes.CONTROLLER, encode_controller(99, 0))])  # its own would lead what others lead
        infos = [BrokerInfo(each, (Endpoint("PLAINTEXT", f"10.0.0.{each}", 9092),)) for each in self.ids]
        cache.snapshot = cache.snapshot.updated(infos, broker_id, (), (), {})
        for info in infos:
            if store.exists(znodes.broker(info.broker_id)) is None:
                store.create(znodes.broker(info.broker_id), encode_broker(BrokerNode(info.endpoints, None, 0)))
        for index in range(self.partitions):
            store.create(znodes.partition_state("t", index), b"", parents=True)

    def broker_epoch(self, leader: int, broker_id: int) -> int:
        """The incarnation of a broker as the leader's tree has it."""
        found = self.worlds[leader].store.exists(znodes.broker(broker_id))
        assert found is not None
        return found.created_id

    def lead(
        self,
        leader: int,
        *,
        index: int = 0,
        isr: Sequence[int] | None = None,
        followers: Sequence[int] | None = None,
        epochs: int = 1,
    ) -> None:
        """Have the controller's next statement: `leader` leads, the others follow. `followers`: those that hear of it."""
        self.epoch += epochs
        isr = tuple(self.ids if isr is None else isr)
        data, where = encode_state(PartitionState(leader, self.epoch, isr, 1)), TopicPartition("t", index)
        version = max(world.store.set(znodes.partition_state("t", index), data).version for world in self.worlds.values())
        for world in self.worlds.values():
            while world.store.get(path := znodes.partition_state("t", index)).stat.version < version:
                world.store.set(path, data)
        replicas, settings = self.worlds[leader].broker.replicas, self.worlds[leader].broker.topic_settings.of({})
        replicas.become_leader(where, LeaderState(self.epoch, version, self.ids, isr), TOPIC_ID, settings, is_new=True)
        for each in self.ids if followers is None else followers:
            if each != leader and each in self.worlds:
                self.worlds[each].broker.applier.broker_epoch = self.broker_epoch(leader, each)
                follows = FollowerState(self.epoch, version, self.ids, leader)
                self.worlds[each].broker.replicas.become_follower(where, follows, TOPIC_ID, settings, is_new=True)

    def hosted(self, broker_id: int) -> HostedPartition:
        return self.worlds[broker_id].broker.replicas.hosted[ZERO]

    def machine(self, broker_id: int) -> Partition:
        return self.hosted(broker_id).machine

    def state(self, leader: int) -> PartitionState:
        """As the leader's tree has it."""
        return decode_state(STATE, self.worlds[leader].store.get(STATE).data)

    def client(self, broker_id: int) -> Client:
        return self.worlds[broker_id].connect()

    def append(self, broker_id: int, *values: bytes, acks: int = -1, partition: int = 0, **producer: Any) -> Client:
        """Send records to a leader; the connection on which the answer comes."""
        client = self.client(broker_id)
        client.send(produce_request(TOPIC_ID, batch(self.worlds[broker_id], *values, **producer), partition=partition, acks=acks), 13)
        return client

    def fetch_as(self, follower: int, leader: int, *, offset: int) -> None:
        """Have a leader get a follower's fetch that asks for the records from `offset` on."""
        request = fetch_request(TOPIC_ID, offset, max_wait_ms=0, current_leader_epoch=self.epoch)
        request.replica_state = ReplicaState(follower, self.broker_epoch(leader, follower))
        self.client(leader).ask(request, 17)

    def hold_writes(self, broker_id: int) -> list[Callable[[], object]]:
        """Keep back what a broker writes to the tree from now on; each is written when it is called. `answers` takes their outcomes."""
        store, held = self.worlds[broker_id].broker.store, list[Callable[[], object]]()
        write = store.write
        answers = self.answers[broker_id] = list[Callable[[CoordinationError], object]]()

        def hold(changes: Sequence[Change], done: Callable[[WriteResult | CoordinationError], object]) -> None:
            held.append(lambda: write(changes, done))
            answers.append(done)

        store.write = hold  # type: ignore[method-assign,assignment]
        return held

    def register_again(self, leader: int, broker_id: int) -> None:
        """A broker was registered once more, in the leader's tree."""
        store, path = self.worlds[leader].store, znodes.broker(broker_id)
        data = store.get(path).data
        store.multi([Delete(path), Create(path, data)])

    def flip(self, broker_id: int, path: str, position: int) -> None:
        """Flip the bits of a byte in a file of a broker's disk; a second time it is as before."""
        file = self.worlds[broker_id].disk.open(path, writable=True)
        (byte,) = file.pread(1, position)
        file.pwrite(bytes([byte ^ 0xFF]), position)
        file.release()

    def run(self, seconds: float = 0.0) -> None:
        """Let what is sent arrive and be answered; then let time pass, and the same again."""
        for _ in range(MOVES):
            self.clock.settle()
            self.network.move()
        for _ in range(int(seconds / 0.05)):
            self.clock.advance(0.05)
            for _ in range(8):
                self.clock.settle()
                self.network.move()
        for world in self.worlds.values():
            world.check_replicas()

    def cut(self) -> None:
        """All connections between brokers are lost."""
        for link in list(self.network.links):
            for end in link.ends:
                end.lost()

    def kill(self, broker_id: int) -> None:
        """A broker is gone, with its connections."""
        host = f"10.0.0.{broker_id}"
        self.network.stop_listening(host, 9092)
        self.worlds.pop(broker_id).broker.replicas.close()
        for link in list(self.network.links):
            if any(end.local[0] == host for end in link.ends):
                for end in link.ends:
                    end.lost()

    def gone(self, broker_id: int) -> None:
        """The others learn that a broker is not registered any more."""
        for each, world in self.worlds.items():
            cache = world.broker.cache
            live = [info for info in cache.snapshot.brokers.values() if info.broker_id != broker_id]
            cache.snapshot = cache.snapshot.updated(live, each, (), (), {})

    def values(self, broker_id: int, offset: int = 0) -> list[bytes | None]:
        """All that a broker's log has from an offset on."""
        log = self.hosted(broker_id).log
        if offset >= log.log_end_offset:
            return []
        read = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        assert read.records is not None
        data = read.records.file.pread(read.records.length, read.records.position)
        read.records.release()
        return [record.value for record in iterate_log(memoryview(data), max_decompressed_bytes=1 << 24)]


def produced(client: Client) -> list[tuple[int, int]]:
    """Codes and base offsets that a producer has received."""
    found = (each.body.responses[0].partition_responses[0] for each in client.answers())
    return [(each.error_code, each.base_offset) for each in found]


def fetched(client: Client, offset: int = 0) -> Any:
    """What a consumer reads."""
    return client.ask(fetch_request(TOPIC_ID, offset, max_wait_ms=0), 13).responses[0].partitions[0]
