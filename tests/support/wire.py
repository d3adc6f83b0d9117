"""A plain socket that speaks the protocol, for tests that need to see bytes, pauses and closed connections."""

import contextlib
import socket
import struct
import time
from typing import Any

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decoder, encode
from moldau.protocol.headers import decode_response_header, request_header
from moldau.protocol.messages import load
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.records.batch import RecordBatchBuilder

LIMIT_S = 60.0


class Wire:
    """A plain socket that speaks the protocol."""

    def __init__(self, address: tuple[str, int], *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(LIMIT_S)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.correlation_id = 0
        self.due: list[tuple[int, int, int]] = []

    def frame(self, request: Any, version: int) -> bytes:
        """A request's bytes; its answer is due then."""
        self.correlation_id += 1
        self.due.append((self.correlation_id, request.API, version))
        payload = request_header(request.API, version, self.correlation_id, "wire") + encode(request, version)
        return struct.pack(">i", len(payload)) + payload

    def ask(self, request: Any, version: int) -> Any:
        """Send, and wait for the answer."""
        self.socket.sendall(self.frame(request, version))
        return self.answer()

    def answer(self, piece: int = 1 << 16) -> Any:
        """The next answer, read in pieces of that size."""
        (size,) = struct.unpack(">i", self.read(4, piece))
        frame = self.read(size, piece)
        correlation_id, api_key, version = self.due.pop(0)
        got, position = decode_response_header(frame, api_key, version)
        assert got == correlation_id
        body, end = decoder(load(ApiKey(api_key)).response, version)(memoryview(frame), position)
        assert end == size
        return body

    def read(self, count: int, piece: int = 1 << 16) -> bytes:
        """So many bytes."""
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(min(piece, count - len(data)))
            assert more, f"closed after {len(data)} of {count} bytes"
            data += more
        return bytes(data)

    @property
    def is_closed(self) -> bool:
        """Whether the server has closed it, once all it has sent is read."""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(1 << 16):
                assert data
        return True

    def create(self, topic: str) -> None:
        """A topic of one partition."""
        self.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)]), 5)

    def close(self) -> None:
        """Close it."""
        self.socket.close()


def batch(value: bytes, count: int = 1) -> bytes:
    """A batch of equal records."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(time.time_ns() // 1_000_000, None, value)
    return builder.build()


def produce(topic: str, records: bytes, acks: int = 1) -> ProduceRequest:
    """One batch for partition 0."""
    return ProduceRequest(None, acks, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])])


def fetch(topic: str, offset: int, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20) -> FetchRequest:
    """Records of partition 0."""
    wanted = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 26, topics=[FetchTopic(topic, partitions=wanted)])
