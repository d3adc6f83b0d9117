"""What hostile peers send a broker and its registry. Each attack is bounded in count and time, and leaves what it can leave behind.

An attack need not succeed in anything: requests may be refused, connections cut. What counts is what others see meanwhile.
"""

import contextlib
import functools
import json
import random
import re
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from moldau.protocol.codec import encode
from moldau.protocol.headers import request_header
from moldau.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from moldau.protocol.messages.group_members import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopicsRequest
from moldau.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from support.bombs import batch_of
from support.wire import Wire, fetch, produce

PRODUCE_VERSION = 9
TAGGED_VERSION = 12
"""Of Metadata: flexible, so that its end is a list of tagged fields."""
METADATA_KEY = 3
HELD_S = 2.0
"""How long connections that do nothing are held open."""


@dataclass(frozen=True)
class Target:
    """What is attacked."""

    address: tuple[str, int]
    registry_url: str


Attack = Callable[[Target, random.Random], object]


@contextlib.contextmanager
def wire(target: Target) -> Iterator[Wire]:
    """A connection; that it is cut, refused or not served is an answer like any other."""
    with contextlib.suppress(OSError, AssertionError):
        connected = Wire(target.address)
        try:
            yield connected
        finally:
            connected.close()


def topic(target: Target, name: str, **configs: str) -> None:
    with wire(target) as connected:
        settings = [CreatableTopicConfig(each.replace("_", "."), value) for each, value in configs.items()]
        connected.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=settings)], timeout_ms=30_000), 5)


def coordinator(target: Target, kind: int) -> None:
    """Have the internal topic of groups (0) or transactions (1) made."""
    with wire(target) as connected:
        while connected.ask(FindCoordinatorRequest("any", kind), 3).error_code:
            time.sleep(0.05)


def send(target: Target, name: str, records: bytes | memoryview) -> None:
    with wire(target) as connected:
        connected.ask(produce(name, bytes(records)), PRODUCE_VERSION)


@functools.cache
def large_batch(compression: Compression, count: int, size: int) -> bytes:
    builder = RecordBatchBuilder(compression=compression)
    for number in range(count):
        builder.append(1_000_000 + number % 1_000, b"k%d" % number, bytes(size))
    return builder.build()


@functools.cache
def header_bomb() -> bytes:
    return bytes(batch_of(20_000_000))


def long_fetch(name: str, count: int, *, max_wait_ms: int, index: int | None = None) -> FetchRequest:
    """A fetch of `count` partitions, or of one as many times, that is not answered before there is more than there ever is."""
    wanted = [FetchPartition(partition=number if index is None else index, partition_max_bytes=1 << 20) for number in range(count)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=2**31 - 1, max_bytes=2**31 - 1, topics=[FetchTopic(name, partitions=wanted)])


def look_up_by_time(target: Target, choice: random.Random) -> None:
    """One partition 50 times in a request, then 40,000 entries, over a batch of many records whose times mislead the index."""
    topic(target, "times", max_message_bytes="2000000")
    send(target, "times", large_batch(Compression.NONE, 20_000, 20))
    for entries in (50, 40_000):
        with wire(target) as connected:
            wanted = [ListOffsetsPartition(0, -1, 1_000_998 + number % 2) for number in range(entries)]
            connected.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("times", wanted)]), 5)


def header_bombs(target: Target, choice: random.Random) -> None:
    """Twenty million headers in four kilobytes, stored and looked up, and produced to where records are walked."""
    topic(target, "bombs")
    topic(target, "bombs-compacted", cleanup_policy="compact")
    topic(target, "bombs-walked", produce_validation="records")
    for name in ("bombs", "bombs-compacted", "bombs-walked"):
        send(target, name, header_bomb())
        with wire(target) as connected:
            connected.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, 4)])]), 5)


def large_batches(target: Target, choice: random.Random) -> None:
    """Batches far beyond max.message.bytes, and just within it, to topics that walk or recompress them."""
    for name, configs in {
        "walked": {"produce_validation": "records"},
        "compacted": {"cleanup_policy": "compact"},
        "gzipped": {"compression_type": "gzip", "compression_gzip_level": "9"},
    }.items():
        topic(target, name, **configs)
        for records in (large_batch(Compression.NONE, 300_000, 10), large_batch(Compression.ZSTD, 300_000, 10)):
            send(target, name, records)
        topic(target, f"{name}-wide", max_message_bytes="10000000", **configs)
        send(target, f"{name}-wide", large_batch(Compression.NONE, 300_000, 10))


def tagged_fields(target: Target, choice: random.Random) -> None:
    """A request that ends with as many empty tagged fields as its frame takes."""
    for count in (1_000_000, 2_000_000):
        fields = b"".join(_varint(tag) + b"\0" for tag in range(1000, 1000 + count))[: 4_000_000 - 100]
        payload = request_header(METADATA_KEY, TAGGED_VERSION, 1, "tags") + b"\x01\x00\x00" + _varint(count) + fields
        with wire(target) as connected:
            connected.socket.sendall(struct.pack(">i", len(payload)) + payload)
            connected.socket.recv(1 << 16)


def many_topics(target: Target, choice: random.Random) -> None:
    """Thousands of topics and partitions made, described and deleted, by one request each."""
    names = [f"many-{number}" for number in range(1_000)]
    with wire(target) as connected:
        connected.socket.settimeout(60)
        connected.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names], timeout_ms=60_000), 5)
        connected.ask(CreateTopicsRequest([CreatableTopic("many-partitions", 2_000, 1)], timeout_ms=60_000), 5)
        connected.ask(DescribeConfigsRequest([DescribeConfigsResource(2, name, None) for name in names], True, True), 3)
        connected.ask(DeleteTopicsRequest(topic_names=[*names, "many-partitions"], timeout_ms=60_000), 5)


def readers_that_never_read(target: Target, choice: random.Random) -> None:
    """Hundreds of connections, each with a hundred fetches of a megabyte whose answers nobody takes."""
    topic(target, "unread")
    for _ in range(10):
        send(target, "unread", large_batch(Compression.NONE, 9, 100_000))
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 26, topics=[FetchTopic("unread", partitions=wanted)])
    payload = request_header(1, 11, 1, "unread") + encode(request, 11)
    frames = (struct.pack(">i", len(payload)) + payload) * 100
    _hold(target, 293, frames)


def halves_of_frames(target: Target, choice: random.Random) -> None:
    """Frames of a hundred megabytes that are begun and never ended."""
    head = struct.pack(">i", 100_000_000) + request_header(0, 9, 1, "half")
    _hold(target, 100, head + bytes(2_000_000))


def long_requests_at_once(target: Target, choice: random.Random) -> None:
    """Produce, Fetch and another request with 49,000 entries each, of fifteen connections at once."""
    topic(target, "long")
    coordinator(target, 0)
    entries = range(49_000)
    requests: list[tuple[Any, int]] = [
        (ProduceRequest(None, 1, 1_000, [TopicProduceData("long", partition_data=[PartitionProduceData(n, None) for n in entries])]), 8),
        (long_fetch("long", len(entries), max_wait_ms=0), 4),
        (DescribeGroupsRequest([f"g{number}" for number in entries]), 0),
    ]
    for request, version in requests:
        with contextlib.ExitStack() as crowd:
            connections = [crowd.enter_context(wire(target)) for _ in range(15)]
            for connected in connections:
                connected.socket.sendall(connected.frame(request, version))
            for connected in connections:
                (size,) = struct.unpack(">i", connected.read(4))
                connected.read(size)


def long_fetches_that_wait(target: Target, choice: random.Random) -> None:
    """Three hundred fetches of a thousand partitions each that wait for ever, and as many of one partition a thousand times."""
    with wire(target) as connected:
        connected.ask(CreateTopicsRequest([CreatableTopic("waiting", 1_000, 1)], timeout_ms=30_000), 5)
    for index in (None, 0):
        with contextlib.ExitStack() as crowd:
            for _ in range(60):
                connected = crowd.enter_context(wire(target))
                for _ in range(5):
                    connected.socket.sendall(connected.frame(long_fetch("waiting", 1_000, max_wait_ms=2**31 - 1, index=index), 4))
            time.sleep(HELD_S)


def joins_of_groups(target: Target, choice: random.Random) -> None:
    """A hundred and fifty members with four megabytes of metadata each, whose connections end at once."""
    coordinator(target, 0)
    metadata = [JoinGroupRequestProtocol("range", bytes(3_900_000))]
    for number in range(150):
        with wire(target) as connected:
            connected.socket.settimeout(5)
            request = JoinGroupRequest(f"group-{choice.randrange(10**9)}-{number}", 1_800_000, 60_000, "", None, "consumer", metadata)
            connected.ask(request, 3)


def offsets_with_metadata(target: Target, choice: random.Random) -> None:
    """Groups that commit two hundred offsets with four kilobytes of text each."""
    coordinator(target, 0)
    text = "m" * 4_000
    with wire(target) as connected:
        connected.ask(CreateTopicsRequest([CreatableTopic("noted", 200, 1)], timeout_ms=30_000), 5)
    partitions = [OffsetCommitRequestPartition(number, 1, -1, text) for number in range(200)]
    with wire(target) as connected:
        for _ in range(100):
            group = f"offsets-{choice.randrange(10**9)}"
            connected.ask(OffsetCommitRequest(group, -1, "", None, topics=[OffsetCommitRequestTopic("noted", partitions=partitions)]), 7)


def forged_producers(target: Target, choice: random.Random) -> None:
    """Batches of producer ids that nobody has given out, and transactional ids by the thousand."""
    topic(target, "forged")
    coordinator(target, 1)
    with wire(target) as connected:
        for _ in range(20_000):
            builder = RecordBatchBuilder(producer_id=choice.randrange(1 << 60), producer_epoch=0, base_sequence=0)
            builder.append(1, b"k", b"v")
            connected.ask(produce("forged", builder.build()), PRODUCE_VERSION)
        for _ in range(500):
            connected.ask(InitProducerIdRequest(f"forged-{choice.randrange(10**12)}", 60_000), 2)


def internal_topics(target: Target, choice: random.Random) -> None:
    """The brokers' and the registry's own topics, deleted."""
    with wire(target) as connected:
        connected.ask(DeleteTopicsRequest(topic_names=["__consumer_offsets", "__transaction_state", "_schemas"], timeout_ms=30_000), 5)


def segments_by_age(target: Target, choice: random.Random) -> None:
    """Two thousand batches in a request of 140 KB, for a topic that begins a segment at each of them."""
    topic(target, "aged", segment_ms="1")
    now_ms = time.time_ns() // 1_000_000
    batches = []
    for number in range(2_000):
        builder = RecordBatchBuilder()
        builder.append(now_ms - 1_000_000 + 10 * number, None, b"v")
        batches.append(PartitionProduceData(0, builder.build()))
    with wire(target) as connected:
        connected.ask(ProduceRequest(None, 1, 30_000, [TopicProduceData("aged", partition_data=batches)]), PRODUCE_VERSION)


def groups_deleted_at_once(target: Target, choice: random.Random) -> None:
    """Five thousand groups, deleted by one request."""
    coordinator(target, 0)
    topic(target, "read")
    partitions = [OffsetCommitRequestPartition(0, 1, -1, "")]
    with wire(target) as connected:
        for number in range(5_000):
            committed = [OffsetCommitRequestTopic("read", partitions=partitions)]
            connected.ask(OffsetCommitRequest(f"short-{number}", -1, "", None, topics=committed), 7)
        connected.ask(DeleteGroupsRequest([f"short-{number}" for number in range(5_000)]), 1)


def configurations_of_schemas(target: Target, choice: random.Random) -> None:
    """A hundred subjects of the registry with 900 KB of configuration each."""
    for number in range(100):
        body = json.dumps({"compatibility": "FULL", "compatibilityGroup": "x" * 900_000}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{target.registry_url}/config/filled-{number}", body, headers, method="PUT")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(request, timeout=20).read()


def aborted_below_an_open_transaction(target: Target, choice: random.Random) -> None:
    """A thousand aborted transactions after the first record of one that stays open; then fetches that name their partition as often."""
    topic(target, "undecided")
    coordinator(target, 1)
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)] * 1_000
    fetches = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=[FetchTopic("undecided", partitions=wanted)])
    with wire(target) as connected:
        producers = {name: f"{name}-{choice.randrange(10**12)}" for name in ("held", "aborted")}
        ids = {name: connected.ask(InitProducerIdRequest(each, 60_000), 2).producer_id for name, each in producers.items()}
        for number in range(1_001):
            name = "aborted" if number else "held"
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producers[name],
                v3_and_below_producer_id=ids[name],
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[AddPartitionsToTxnTopic("undecided", [0])],
            )
            connected.ask(added, 3)
            builder = RecordBatchBuilder(producer_id=ids[name], producer_epoch=0, base_sequence=max(number - 1, 0), transactional=True)
            builder.append(1, None, b"v")
            batches = [PartitionProduceData(0, builder.build())]
            connected.ask(
                ProduceRequest(producers[name], -1, 30_000, [TopicProduceData("undecided", partition_data=batches)]), PRODUCE_VERSION
            )
            if number:
                connected.ask(EndTxnRequest(producers[name], ids[name], 0, committed=False), 3)
        for _ in range(5):
            connected.ask(fetches, 11)


def resets(target: Target, choice: random.Random) -> None:
    """Requests of many kinds, long ones and such that wait, whose connections are reset at once or a little later.

    The topics of the round before are deleted, also those whose creation was under way when it ended: how many there may be is a bound of
    its own (`max.partitions`).
    """
    with wire(target) as connected:
        known = connected.ask(MetadataRequest(None), 5).topics
        left = [each.name for each in known if re.fullmatch(r"reset-\d.*", each.name)]
        connected.ask(DeleteTopicsRequest(topic_names=left, timeout_ms=30_000), 5)
    coordinator(target, 0)
    topic(target, "reset")
    topic(target, "reset-walked", produce_validation="records")
    for number in range(20):
        name = f"reset-{number}-{choice.randrange(10**9)}"
        for request, version in (
            (CreateTopicsRequest([CreatableTopic(f"{name}-{each}", 1, 1) for each in range(20)], timeout_ms=30_000), 5),
            (DeleteTopicsRequest(topic_names=[f"{name}-{each}" for each in range(20)], timeout_ms=30_000), 5),
            (produce("reset-walked", large_batch(Compression.NONE, 4_000, 100)), PRODUCE_VERSION),
            (fetch("reset", 0, max_wait_ms=5_000), 11),
            (JoinGroupRequest(name, 6_000, 6_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 3),
        ):
            with wire(target) as connected:
                connected.socket.sendall(connected.frame(request, version))
                time.sleep(choice.choice((0, 0.001, 0.02)))
                if choice.random() < 0.2:
                    connected.socket.shutdown(socket.SHUT_WR)
                connected.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def names_for_the_log(target: Target, choice: random.Random) -> None:
    """Ids and names that would begin a line of the log, be another field, or colour a terminal; up to 30 KB long."""
    coordinator(target, 0)
    topic(target, "named")
    for text in ("\n2026-01-02T03:04:05.678Z error forged: by=peer", "g generation=7", '"\x1b[31m', "\u202egnp", "x" * 30_000):
        with wire(target) as connected:
            connected.ask(JoinGroupRequest(text, 6_000, 6_000, "", text, "consumer", [JoinGroupRequestProtocol("range", b"")]), 5)
        with wire(target) as connected:
            connected.ask(InitProducerIdRequest(text, 60_000), 2)
        with wire(target) as connected:
            connected.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig(text, text)])]), 5)
        for key in (METADATA_KEY, 999):
            payload = request_header(key, 1, 1, text) + struct.pack(">i", 100)
            with wire(target) as connected:
                connected.socket.sendall(struct.pack(">i", len(payload)) + payload)
                connected.socket.recv(1 << 16)


def noise(target: Target, choice: random.Random) -> None:
    """Bytes that are no requests."""
    for _ in range(200):
        with wire(target) as connected:
            connected.socket.settimeout(0.2)
            size = choice.randint(1, 2_000)
            head = struct.pack(">ihhi", size + 8, choice.randrange(80), choice.randrange(15), 1)
            connected.socket.sendall((head if choice.random() < 0.8 else b"") + choice.randbytes(size))
            with contextlib.suppress(TimeoutError):
                connected.socket.recv(1 << 16)


HOSTILE_SCHEMAS: dict[str, Callable[[], tuple[str, str]]] = {
    "comments": lambda: ("PROTOBUF", "/**/" * 60 + "x"),
    "messages": lambda: ("PROTOBUF", 'syntax = "proto3";' + "".join(f"message M{number} {{ int32 a = 1; }}" for number in range(30_000))),
    "pattern": lambda: ("JSON", json.dumps({"type": "object", "patternProperties": {"^(a+)+$": {}}, "default": {"a" * 40 + "!": 1}})),
    "oneOf": lambda: (
        "JSON",
        json.dumps({"oneOf": [{"type": "object", "properties": {f"p{n}": {"type": "string"}}} for n in range(3_000)]}),
    ),
    "enum": lambda: (
        "JSON",
        json.dumps(
            {"$schema": "http://json-schema.org/draft-04/schema#", "enum": [{"a": number, "b": [number]} for number in range(20_000)]}
        ),
    ),
    "depth": lambda: ("AVRO", '{"type":"array","items":' * 3_000 + '"int"' + "}" * 3_000),
}


def hostile_schemas(target: Target, choice: random.Random) -> None:
    """Texts that take a parser or a comparison for ever, registered twice under a subject, so that they are compared as well."""
    for name, make in HOSTILE_SCHEMAS.items():
        kind, text = make()
        for version in range(2):
            body = json.dumps({"schemaType": kind, "schema": text if version == 0 else text + " "}).encode()
            headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
            request = urllib.request.Request(f"{target.registry_url}/subjects/hostile-{name}/versions", body, headers, method="POST")
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(request, timeout=20).read()


def half_sent_http(target: Target, choice: random.Random) -> None:
    """Requests over HTTP that are begun and never ended."""
    host, _, port = target.registry_url.removeprefix("http://").rpartition(":")
    crowd: list[socket.socket] = []
    with contextlib.suppress(OSError):
        for _ in range(300):
            connected = socket.create_connection((host, int(port)), timeout=5)
            crowd.append(connected)
            connected.sendall(b"POST /subjects/x/versions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{")
    time.sleep(HELD_S)
    for connected in crowd:
        connected.close()


ATTACKS: dict[str, Attack] = {
    each.__name__: each
    for each in (
        look_up_by_time,
        header_bombs,
        large_batches,
        tagged_fields,
        many_topics,
        readers_that_never_read,
        halves_of_frames,
        long_requests_at_once,
        long_fetches_that_wait,
        joins_of_groups,
        offsets_with_metadata,
        forged_producers,
        internal_topics,
        segments_by_age,
        groups_deleted_at_once,
        configurations_of_schemas,
        aborted_below_an_open_transaction,
        resets,
        names_for_the_log,
        noise,
        hostile_schemas,
        half_sent_http,
    )
}


def _hold(target: Target, connections: int, data: bytes) -> None:
    """Connections that send and take nothing, for a while."""
    crowd: list[socket.socket] = []
    with contextlib.suppress(OSError):
        for _ in range(connections):
            connected = socket.create_connection(target.address, timeout=2)
            crowd.append(connected)
            connected.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                connected.sendall(data)
    time.sleep(HELD_S)
    for connected in crowd:
        connected.close()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
