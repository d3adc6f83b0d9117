"""A broker that is killed in any state of a transaction finishes what was decided, and nothing else (mission A10, fault T2).

The states in which markers are being written do not last. So the topic, which has a replica on a broker that does not live, is made to
ask for two replicas in sync before the end: the decision is stored, and no marker can be written until that is taken back.
"""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.codec import decode
from moldau.protocol.messages.configs import IncrementalAlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResource
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.transaction_admin import DescribeTransactionsRequest
from moldau.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from moldau.protocol.records.header import stamp_crc
from support.lacking import lack_replicas
from support.server import ServerProcess
from support.transactional_producer import NEWEST, OLDER, RawProducer, Versions, read_committed
from support.wire import Wire

pytestmark = pytest.mark.system

NONE = ErrorCode.NONE
LIMIT_S = 60.0
TOPIC_RESOURCE = 2
MANY = 40_000
AT_ONCE = 200
PRODUCER_EPOCH_OFFSET = 51
"""Of a batch."""
FIRST_EPOCHS = 32_767
"""How many transactions a producer id has: those with the epochs 0 to 32766."""


class World:
    """A server, and a connection to it that is made anew after it was killed."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        if self._wire is None:
            host, _, port = self.server.bootstrap.rpartition(":")
            self._wire = Wire((host, int(port)))
        return self._wire

    def ask(self, request: Any, version: int) -> Any:
        """Ask, and again while the internal topic is being read."""
        limit = time.monotonic() + LIMIT_S
        while True:
            answer = self.wire.ask(request, version)
            if getattr(answer, "error_code", 0) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > limit:
                return answer

    def kill(self) -> None:
        self.close()
        self.server.kill()
        self.server.start()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def state(self) -> str:
        """Where the id "app" stands."""
        while True:
            (found,) = self.ask(DescribeTransactionsRequest(["app"]), 0).transaction_states
            if found.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert found.error_code == 0
                return str(found.transaction_state)

    def wait_for(self, state: str) -> None:
        limit = time.monotonic() + LIMIT_S
        while (now := self.state()) != state:
            assert time.monotonic() < limit, f"{now}, not {state}"

    def replicas_needed(self, count: int) -> None:
        configs = [IncrementalAlterableConfig("min.insync.replicas", 0, str(count))]
        answer = self.ask(IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC_RESOURCE, "t", configs)]), 1)
        assert answer.responses[0].error_code == 0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ServerProcess(tmp_path, settings={"transaction.state.log.num.partitions": "2"}) as server:
        world = World(server)
        world.ask(CreateTopicsRequest([CreatableTopic("t", 2, 1)]), 5)
        world.close()
        server.stop()
        lack_replicas(server.data, "t")
        server.start()
        yield world
        world.close()


@pytest.mark.parametrize("versions", [NEWEST, OLDER], ids=["newest", "older"])
def test_a_broker_that_is_killed_finishes_what_was_decided(world: World, versions: Versions) -> None:
    producer = RawProducer(world.ask, "app", versions)
    assert producer.find() is NONE
    assert producer.init() is NONE
    world.kill()
    assert world.state() == "Empty"
    expected: list[bytes] = []
    for number, committed in enumerate((True, False, True)):
        value, kept = b"%d" % number, [b"%d" % number] if committed else []
        assert producer.send("t", value) is NONE
        world.kill()
        assert world.state() == "Ongoing"
        assert producer.send("t", value, partition=1) is NONE
        world.replicas_needed(2)
        assert producer.end(committed=committed) is NONE
        assert world.state() == ("PrepareCommit" if committed else "PrepareAbort")
        assert read_committed(world.ask, "t") == expected
        world.kill()
        assert world.state() == ("PrepareCommit" if committed else "PrepareAbort")
        world.replicas_needed(1)
        world.wait_for("CompleteCommit" if committed else "CompleteAbort")
        expected += kept
        assert [read_committed(world.ask, "t", index) for index in (0, 1)] == [expected, expected]
        world.kill()
        assert world.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert producer.send("t", b"last") is NONE
    assert producer.end(committed=True) is NONE
    assert read_committed(world.ask, "t") == [*expected, b"last"]


def test_a_transaction_of_a_producer_that_is_gone_ends_after_a_kill_in_its_time(world: World) -> None:
    world.server.settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "100"
    producer = RawProducer(world.ask, "app")
    producer.find()
    assert producer.init(timeout_ms=1000) is NONE
    assert producer.send("t", b"never") is NONE
    world.kill()
    world.wait_for("CompleteAbort")
    assert read_committed(world.ask, "t") == []
    assert producer.end(committed=True) is ErrorCode.INVALID_TXN_STATE
    assert producer.end(committed=False) is NONE
    assert producer.send("t", b"later") is NONE
    assert producer.end(committed=True) is NONE
    assert read_committed(world.ask, "t") == [b"later"]


def test_one_producer_makes_40_000_transactions(world: World) -> None:
    """Many requests are on their way at once: the epoch of each transaction is known beforehand, until the producer id changes."""
    producer = RawProducer(world.ask, "app", now_ms=lambda: 1_700_000_000_000)
    producer.find()
    assert producer.init() is NONE
    first, done = producer.producer_id, 0
    while done < MANY:
        frames = Frames(world.wire, producer)
        until = FIRST_EPOCHS if producer.producer_id == first else MANY
        while done < until:
            count = min(AT_ONCE, until - done)
            ended = frames.exchange(count)
            assert ended.error_code == 0
            done += count
        producer.producer_id, producer.epoch = ended.producer_id, ended.producer_epoch
    assert producer.producer_id != first
    assert producer.epoch == MANY - FIRST_EPOCHS
    assert read_committed(world.ask, "t") == [b"x"] * MANY
    world.kill()
    assert world.state() == "CompleteCommit"
    assert producer.send("t", b"after") is NONE
    assert producer.end(committed=True) is NONE


class Frames:
    """The two requests of a transaction as bytes, in which only the epoch changes from one to the next."""

    def __init__(self, wire: Wire, producer: RawProducer) -> None:
        self.wire = wire
        self.epoch = producer.epoch
        request = producer.request("t", b"x")
        records = bytes(request.topic_data[0].partition_data[0].records or b"")
        self.produce = bytearray(wire.frame(request, 12))
        self.end = bytearray(wire.frame(EndTxnRequest("app", producer.producer_id, producer.epoch, committed=True), 5))
        self.batch = self.produce.index(records), len(records)
        self.end_epoch = self.end.index(struct.pack(">qh", producer.producer_id, producer.epoch)) + 8
        wire.due.clear()

    def exchange(self, count: int) -> EndTxnResponse:
        """Make `count` transactions; the answer to the last end. Further requests of the connection are numbered anew."""
        data = bytearray()
        start, size = self.batch
        batch = memoryview(self.produce)[start : start + size]
        for _ in range(count):
            struct.pack_into(">h", batch, PRODUCER_EPOCH_OFFSET, self.epoch)
            struct.pack_into(">h", self.end, self.end_epoch, self.epoch)
            stamp_crc(batch)
            data += self.produce
            data += self.end
            self.epoch += 1
        self.wire.socket.sendall(data)
        for _ in range(2 * count):
            frame = self.wire.read(struct.unpack(">i", self.wire.read(4))[0])
        position = 4 + 1  # correlation id and tags
        return decode(EndTxnResponse, 5, memoryview(frame)[position:])
