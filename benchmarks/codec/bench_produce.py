"""The steps of a produce request through the protocol: frame, header, request, batch, stamp, answer; and those of a fetch.

The records' size shows where their bytes are looked at (checksum) or moved (framing), and nowhere else.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from codec.timing import row
from moldau.ports.transport import FileRange
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.fast.fetch import FetchPartitionResult, decode_fetch, encode_fetch_response
from moldau.protocol.fast.produce import ProducePartitionResult, decode_produce, encode_produce_response
from moldau.protocol.framing import FrameReader, ReceiveBuffer
from moldau.protocol.headers import decode_request_header, request_header
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import CREATE_TIME, Record, encode_batch
from moldau.protocol.records.header import check_batch, stamp, stamp_log_append_time
from moldau.testing.disk import ForgetfulDisk

DECODE_TARGET_US = 3.0
ENCODE_TARGET_US = 2.0
TOPIC = "measurements"
TOPIC_ID = bytes(range(16))


def batch_of(records: int) -> bytes:
    """Values of 200 bytes without keys, as the paper's producer test has them."""
    return encode_batch([Record(offset, 1_700_000_000_000 + offset, CREATE_TIME, None, bytes(200), []) for offset in range(records)])


def request_of(batch: bytes, version: int) -> bytes:
    """A whole produce request for one partition."""
    by_name, topic_id = (TOPIC, bytes(16)) if version < 13 else ("", TOPIC_ID)
    topic = TopicProduceData(name=by_name, topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])
    return request_header(ApiKey.PRODUCE, version, 77, "producer-1") + encode(request, version)


def measure() -> Iterator[dict[str, Any]]:
    """Each step by itself, for batches of one record, of fifty and of a megabyte."""
    for records in (1, 50, 4800):
        batch = batch_of(records)
        for version in (7, 9, 13):
            view = memoryview(bytearray(request_of(batch, version)))

            def decode(view: memoryview = view) -> object:
                header = decode_request_header(view)
                return decode_produce(view, header.body_position, header.api_version)

            yield row(f"decode header and Produce v{version}", decode, target_us=DECODE_TARGET_US, records_bytes=len(batch))
        writable = memoryview(bytearray(batch))
        yield row("check batch", partial(check_batch, writable), records_bytes=len(batch))
        yield row("stamp log append time", partial(stamp_log_append_time, writable, 1_700_000_000_000), records_bytes=len(batch))
        yield row("frame out of a receive buffer", framing(request_of(batch, 9)), records_bytes=len(batch))
    yield row("stamp base offset and leader epoch", lambda: stamp(writable, 1 << 40, 7))
    yield from answers()
    yield from fetches()


def answers() -> Iterator[dict[str, Any]]:
    """What every produce request is answered with; making the result is part of it."""
    for version in (7, 9, 13):
        topic = TOPIC.encode() if version < 13 else TOPIC_ID

        def answer(version: int = version, topic: bytes = topic) -> object:
            return encode_produce_response(version, 77, [(topic, [ProducePartitionResult(0, 0, 123456789, -1, 0)])])

        yield row(f"encode Produce v{version} answer", answer, target_us=ENCODE_TARGET_US)


def fetches() -> Iterator[dict[str, Any]]:
    """A consumer of one partition, and one of a hundred; answers with ranges of a file."""
    records = FileRange(ForgetfulDisk().open("/log", create=True), 0, 200_000)
    for version in (11, 12, 16):
        by_name, topic_id, topic = (TOPIC, bytes(16), TOPIC.encode()) if version < 13 else ("", TOPIC_ID, TOPIC_ID)
        for count in (1, 100):
            partitions = [FetchPartition(partition=index, fetch_offset=5000, partition_max_bytes=1 << 20) for index in range(count)]
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=50 << 20,
                topics=[FetchTopic(topic=by_name, topic_id=topic_id, partitions=partitions)],
            )
            view = memoryview(encode(request, version))

            def decode(view: memoryview = view, version: int = version) -> object:
                return decode_fetch(view, 0, version)

            def answer(version: int = version, topic: bytes = topic, count: int = count) -> object:
                results = [FetchPartitionResult(index, 0, 6000, 6000, 0, records) for index in range(count)]
                return encode_fetch_response(version, 77, 0, 0, 0, [(topic, results)])

            yield row(f"decode Fetch v{version}", decode, partitions=count)
            yield row(f"encode Fetch v{version} answer", answer, partitions=count)


def framing(request: bytes) -> Any:
    """Receives one framed request in reads as large as the room that is offered."""
    reader = FrameReader(ReceiveBuffer(), 100 << 20)
    stream = memoryview(len(request).to_bytes(4, "big") + request)

    def receive() -> None:
        left = stream
        while left:
            room = reader.get_buffer()
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            reader.updated(size)
            for _ in reader.frames():
                pass

    return receive
