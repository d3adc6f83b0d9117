"""Batches of a mirror's own topics, whose records are JSON."""

import json
from collections.abc import Iterable, Sequence

from moldau.mirror.merge.outgoing import Outgoing
from moldau.model.identity import TopicPartition
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import peek_header

BATCH_BYTES = 512 * 1024
"""Then another batch begins: any topic takes so large ones, whatever a transaction has."""

KeysAndValues = Sequence[tuple[bytes, bytes]]


def state_batches(target: TopicPartition, groups: Iterable[KeysAndValues], now_ms: int) -> list[Outgoing]:
    """Batches with these keys and values in their order; a group is in one batch, whatever its size."""
    found: list[Outgoing] = []
    builder = RecordBatchBuilder()
    for group in groups:
        size = sum(len(key) + len(value) for key, value in group)
        if len(builder) and builder.size + size > BATCH_BYTES:
            found.append(_built(target, builder))
            builder = RecordBatchBuilder()
        for key, value in group:
            builder.append(now_ms, key, value)
    if len(builder):
        found.append(_built(target, builder))
    return found


def _built(target: TopicPartition, builder: RecordBatchBuilder) -> Outgoing:
    data = memoryview(bytearray(builder.build()))
    return Outgoing(target, data, peek_header(data), [])


def json_bytes(value: object) -> bytes:
    """Without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()
