"""The shortest way of a Produce request and the general one have the same outcome for every input.

Two brokers get the same connections with the same bytes; in one the shortest way is closed. Each connection sends a request of the usual
kind twice, so that the shortest way knows it, and then a changed one: every byte changed, left out or doubled, the frame cut anywhere with
its size put right, other acks, topics, batches. What both answer and what stands in both logs must be the same.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.broker.broker import Broker
from moldau.broker.handlers.produce.fast_path import ProduceFastPath
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control import ControlType, EndTxnMarker
from support.broker_world import BrokerWorld, Client, batch, produce_request
from support.sizes import sized

VERSIONS = (3, 5, 6, 7, 8, 9, 12, 13)
TOPIC = "a-topic"
END = b""
STEP = sized(10, 1)
"""Of all requests one step away, each of the runs below takes every so many."""


class Twins:
    """Two brokers, one with the shortest way and one without."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.short, self.general = BrokerWorld(), BrokerWorld()
        self.topic_ids = [world.create_topic(TOPIC) for world in (self.short, self.general)]
        self.short.create_topic("another")
        self.general.create_topic("another")
        self.taken = 0
        stage = ProduceFastPath.stage

        def counted(path: ProduceFastPath, frame: memoryview, correlation_id: int, now_ms: int) -> bool:
            if path._permits is self.general.broker.replicas.appends.permits:
                return False
            staged = stage(path, frame, correlation_id, now_ms)
            self.taken += staged
            return staged

        monkeypatch.setattr(ProduceFastPath, "stage", counted)
        assert self.topic_ids[0] == self.topic_ids[1]

    def usual(self, version: int, acks: int, transactional_id: str | None = None, **options: object) -> bytes:
        """A request's payload."""
        client = Client(self.short, None)  # type: ignore[arg-type]
        topic = self.topic_ids[0] if version >= 13 else TOPIC
        records = batch(self.short, b"value", **options)  # type: ignore[arg-type]
        return client.frame(produce_request(topic, records, acks=acks, transactional_id=transactional_id), version)[4:]

    def compare(self, *payloads: bytes) -> None:
        """Send the payloads over new connections, each as a read of its own and then all as one. In place of a payload, `END` ends the
        transaction; then each is a read of its own only.
        """
        stream = [payload and struct.pack(">i", len(payload)) + payload for payload in payloads]
        for reads in (stream,) if END in stream else (stream, [b"".join(stream)]):
            outcomes = []
            for world in (self.short, self.general):
                client = world.connect(piece=1 << 20)
                for read in reads:
                    if read == END:
                        end_transaction(world)
                    else:
                        client.peer.send(read)
                answers = client.peer.receive()
                closed = client.closed
                log = world.partition(TOPIC).log
                file = log.read(max(log.log_end_offset - 3, 0), 1 << 20, log.log_end_offset, at_least_one=True).records
                stored = b"" if file is None else file.file.pread(file.length, file.position)
                if file is not None:
                    file.release()
                outcomes.append((answers, closed, log.staged_end_offset, log.log_end_offset, log.high_watermark, stored))
                client.peer.disconnect()
                world.clock.settle()
            assert outcomes[0] == outcomes[1], payloads[-1].hex()


def end_transaction(world: BrokerWorld) -> None:
    """Commit that of producer 3."""
    log = world.partition(TOPIC).log
    epoch = max((entry.epoch for entry in log.active_producers()), default=0)
    log.append_marker_as_leader(3, epoch, EndTxnMarker(ControlType.COMMIT, 0), world.clock.time_ms(), transaction_version=1)
    log.write_staged()


@pytest.fixture
def twins(monkeypatch: pytest.MonkeyPatch) -> Twins:
    return Twins(monkeypatch)


def changed(payload: bytes) -> Iterator[bytes]:
    """Everything that is one step away."""
    for position in range(len(payload)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, payload[position] ^ 1):
            yield payload[:position] + bytes([value]) + payload[position + 1 :]
        yield payload[:position]
        yield payload[:position] + payload[position + 1 :]
        yield payload[: position + 1] + payload[position:]
    yield payload + b"\0"


@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.parametrize("version", VERSIONS)
def test_requests_one_step_away(twins: Twins, version: int, acks: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    usual = twins.usual(version, acks)
    twins.compare(usual, usual, usual)
    assert twins.taken == (4 if version >= 5 else 0)
    for number, other in enumerate(changed(usual)):
        if number % STEP == (version + acks) % STEP:
            twins.compare(usual, usual, other)


@pytest.mark.parametrize("version", [5, 7, 9, 13])
def test_batches_of_every_size_and_kind(twins: Twins, version: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    usual = twins.usual(version, 1)
    others = [twins.usual(version, 1, compression=codec) for codec in Compression]
    others += [twins.usual(version, 1, producer_id=3, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1, 1, 5)]
    others += [twins.usual(version, acks) for acks in (-1, 0, 2)]
    topic: str | bytes = twins.topic_ids[0] if version >= 13 else TOPIC
    for size in (0, 1, 50, 55, 56, 57, 58, 100, 120, 16_200, 16_300, 16_400, 100_000, 1_100_000):
        client = Client(twins.short, None)  # type: ignore[arg-type]
        others.append(client.frame(produce_request(topic, batch(twins.short, b"x" * size)), version)[4:])
    for other in others:
        twins.compare(usual, usual, other, usual)
    assert twins.taken > len(others) * 2


class Leave:
    """A transaction coordinator that lets everybody do everything, or refuses everything with `code`."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE

    def verify(
        self, name: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], done: Callable[[dict[Any, Any]], object]
    ) -> None:
        done(dict.fromkeys(partitions, self.code))

    add_partitions_for_produce = verify

    def is_verified(self, name: str, producer_id: int, epoch: int, partition: TopicPartition) -> bool:
        return self.code is ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 9, 11, 12, 13])
def test_requests_of_a_transaction_one_step_away(
    twins: Twins, version: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first request begins a transaction, the same again is a duplicate; then one that is changed, the next, and one after the end."""
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(Broker, "transactions", Leave())
    producer = {"producer_id": 3, "producer_epoch": 0, "transactional": True}
    usual, following, plain = (
        twins.usual(version, -1, transactional_id="an-id", **options)
        for options in (
            {**producer, "base_sequence": 0},
            {**producer, "base_sequence": 1},
            {**producer, "base_sequence": 1, "transactional": False},
        )
    )
    twins.compare(usual, usual, following, plain, usual)
    assert twins.taken == 1, "the one that follows: what begins a transaction, is repeated, or is no part of one goes the general way"
    step = STEP * 4
    for number, other in enumerate(changed(usual)):
        if number % step == version % step:
            twins.compare(usual, usual, other, following)
    for world in (twins.short, twins.general):
        end_transaction(world)
    twins.compare(usual, following, usual, following)


@pytest.mark.parametrize("version", [5, 7, 9, 11, 12])
def test_the_first_requests_of_further_transactions(
    twins: Twins, version: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Up to version 11 they go the shortest way where the coordinator answers at once, unless they are refused or repeated."""
    caplog.set_level("CRITICAL")
    leave = Leave()
    monkeypatch.setattr(Broker, "transactions", leave)

    def request(sequence: int, epoch: int = 0, *, transactional: bool = True) -> bytes:
        options = {"producer_id": 3, "producer_epoch": epoch, "base_sequence": sequence, "transactional": transactional}
        return twins.usual(version, -1, transactional_id="an-id", **options)

    is_short = version < 12
    twins.compare(request(0), END, request(1), END, request(2), request(3), END)
    assert twins.taken == (3 if is_short else 1)
    for sequence, other in enumerate((request(0), request(99), request(4, epoch=-1), request(8, transactional=False)), 4):
        twins.compare(request(sequence), END, other, END)
    assert twins.taken == (3 if is_short else 1), "one that is repeated, out of order, of no epoch, or no part of a transaction is not"
    twins.compare(request(9), END, request(0, epoch=1), END)
    assert twins.taken == (4 if is_short else 1)
    leave.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    twins.compare(request(1, epoch=1))
    leave.code = ErrorCode.NONE
    twins.compare(request(1, epoch=1), END, request(3, epoch=1), request(2, epoch=1), END)


@settings(max_examples=sized(25, 600), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_requests(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        twins = Twins(monkeypatch)
        version = data.draw(st.sampled_from(VERSIONS))
        usual = bytearray(twins.usual(version, data.draw(st.sampled_from((0, 1, -1)))))
        other = bytearray(usual)
        for _ in range(data.draw(st.integers(1, 4))):
            position = data.draw(st.integers(0, len(other) - 1))
            other[position] = data.draw(st.integers(0, 255))
        twins.compare(bytes(usual), bytes(usual), bytes(other), bytes(usual))
