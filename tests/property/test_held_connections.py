"""Connections that send anything, in pieces, and go at any moment, while threads take their time.

Answers come in the order of requests (the client checks that), every request of who stays is answered, every batch that was acknowledged is
in its log once, in its producer's order; what requests hold is counted and bounded; and nothing is held or counted afterwards.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from moldau.broker.admission.memory import READ_BYTES, SMALL_BYTES
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.records.batch import Compression
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request
from support.sizes import sized

TOPICS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "gzipped": {"compression_type": "gzip"},
    "flushed": {"flush_messages": 1},
}
SIZES = (10, 1000, 40_000, 150_000)


class Crowd:
    """A broker, some clients, and what was sent and acknowledged."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.bound = random.choice([-1, 30_000, 200_000])
        self.world = BrokerWorld(queued_max_request_bytes=self.bound, incomplete_request_timeout_ms=1_000_000_000)
        self.threads = (self.world.compute, self.world.recompress)
        for thread in self.threads:
            thread.immediate = False
        for name, configs in TOPICS.items():
            self.world.create_topic(name, **configs)
        self.clients: list[Client] = []
        self.produced: list[tuple[str, int, int]] = []
        """Topic, producer and sequence of each batch; its place here is its value's first number."""
        self.waiting: dict[tuple[int, int], int] = {}
        """Places of batches by connection and correlation id."""
        self.acknowledged: dict[str, set[int]] = {name: set() for name in TOPICS}
        self.sequences: Counter[tuple[str, int]] = Counter()
        for _ in range(4):
            self.connect()

    def connect(self) -> None:
        self.clients.append(self.world.connect(piece=self.random.choice([100, 3000, 1 << 16])))

    def produce(self, client: Client) -> None:
        topic = self.random.choice(list(TOPICS))
        producer = next(number for number, each in enumerate(self.clients) if each is client)
        sequence, number = self.sequences[topic, producer], len(self.produced)
        self.sequences[topic, producer] += 1
        self.produced.append((topic, producer, sequence))
        value = b"%d:" % number + self.random.randbytes(self.random.choice(SIZES))
        codec = self.random.choice([Compression.NONE, Compression.ZSTD])
        ids = {"producer_id": 100 + producer, "producer_epoch": 0, "base_sequence": sequence}
        client.send(produce_request(topic, batch(self.world, value, key=b"k", compression=codec, **ids)), 9)
        self.waiting[id(client), client.correlation_id] = number

    def ask(self, client: Client) -> None:
        names = [f"made{number}" for number in range(self.random.choice([1, 30]))]
        requests: list[tuple[Any, int]] = [
            (MetadataRequest(topics=None), 12),
            (CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in names]), 7),
            (DeleteTopicsRequest([DeleteTopicState(name) for name in names]), 6),
            (ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, 0)]) for name in TOPICS]), 7),
            (fetch_request("plain", 0, max_wait_ms=100), 12),
        ]
        client.send(*self.random.choice(requests))

    def step(self) -> None:
        client = self.random.choice([each for each in self.clients if not each.peer.transport.closed])
        what = self.random.random()
        if what < 0.6:
            self.produce(client)
        elif what < 0.95:
            self.ask(client)
        else:
            client.peer.disconnect()
            self.connect()
        self.go_on(self.random.random() < 0.5)

    def go_on(self, runs: bool) -> None:
        for thread in self.threads:
            if runs and thread.jobs:
                thread.run_next()
        self.world.clock.settle()
        for client in self.clients:
            if not client.peer.transport.closed:
                client.peer.push()
                self.take(client)
        self.check_memory()

    def check_memory(self) -> None:
        """All is counted; above the bound are one request that is read on, one that has reached it, and a little of each connection."""
        held = self.world.broker.request_memory.held
        assert self.world.request_bytes() <= held
        if self.bound > 0:
            assert held <= self.bound + 2 * (max(SIZES) + 1000) + len(self.clients) * (SMALL_BYTES + READ_BYTES)

    def take(self, client: Client) -> None:
        for answer in client.answers():
            number = self.waiting.pop((id(client), answer.correlation_id), None)
            if number is not None:
                result = answer.body.responses[0].partition_responses[0]
                assert (result.error_code, result.error_message) == (0, None)
                self.acknowledged[self.produced[number][0]].add(number)

    def finish(self) -> None:
        """Until everybody is answered, and some turns more."""
        for _ in range(2000):
            self.go_on(True)
            if not any(client.expected for client in self.clients if not client.peer.transport.closed):
                break
            self.world.clock.advance(0.01)
        for _ in range(100):
            self.go_on(True)

    def stored(self, topic: str) -> list[int]:
        reader, end, found = self.world.connect(), self.world.partition(topic).log.log_end_offset, list[int]()
        while len(found) < end:
            values = reader.values(topic, len(found), max_bytes=1 << 24, partition_max_bytes=1 << 24)
            found += [int((value or b"").partition(b":")[0]) for value in values]
        return found


@pytest.mark.parametrize("seed", range(sized(4, 250)))
def test_nothing_is_lost_reordered_or_held(seed: int) -> None:
    crowd = Crowd(Random(seed))
    there = len(crowd.clients)
    for _ in range(100):
        crowd.step()
    crowd.finish()
    broker = crowd.world.broker
    left = [client for client in crowd.clients if not client.peer.transport.closed]
    assert len(left) == there
    assert [client.expected for client in left] == [[]] * there
    assert [client.peer.unsent for client in left] == [0] * there
    assert (broker.slices.running, broker.request_memory.held, broker.request_memory.waiting) == (0, 0, 0)
    assert len(broker.partitions) == broker.metadata.partition_count
    for topic, acknowledged in crowd.acknowledged.items():
        stored = crowd.stored(topic)
        assert len(set(stored)) == len(stored)
        assert acknowledged <= set(stored)
        next_sequence: Counter[int] = Counter()
        for number in stored:
            _, producer, sequence = crowd.produced[number]
            assert sequence == next_sequence[producer]
            next_sequence[producer] += 1
