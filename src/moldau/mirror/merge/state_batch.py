"""Batches of a mirror's own topics, whose records are JSON."""

import json
from collections.abc import Iterable

from moldau.mirror.merge.outgoing import Outgoing
from moldau.model.identity import TopicPartition
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import peek_header


def state_batch(target: TopicPartition, records: Iterable[tuple[bytes, bytes]], now_ms: int) -> Outgoing:
    """A batch with these keys and values."""
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(now_ms, key, value)
    data = memoryview(bytearray(builder.build()))
    return Outgoing(target, data, peek_header(data), [])


def json_bytes(value: object) -> bytes:
    """Without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()
