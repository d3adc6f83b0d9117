"""Tracked events for the tests of the audit: their bytes as a TrackerProducer sends them, without a registry."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from moldau.client.partition_requests import FetchedBatches
from moldau.model.identity import Offset
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.compression import Compression
from moldau.protocol.varint import varlong

MINUTE = 60_000
NOON = 1_357_041_600_000
"""2013-01-01T12:00:00Z, in ms."""


class Host(NamedTuple):
    """Who sends: a producer instance on its host."""

    name: str = "ewr-1"
    datacenter: str = "ewr"
    service: str = "departures"
    instance: bytes = b"instance"

    def guid(self, number: int) -> bytes:
        """The guid of its n-th event."""
        return self.instance + struct.pack(">Q", number)

    def event(self, number: int, time_ms: int, *, body: bytes = b"the rest of the event", schema_id: int = 7) -> bytes:
        """Its n-th event, framed."""
        return framed(time_ms, self.service, self.name, self.datacenter, self.guid(number), body=body, schema_id=schema_id)


def framed(time_ms: int, service: str, host: str, datacenter: str, guid: bytes, *, body: bytes = b"", schema_id: int = 7) -> bytes:
    """A tracked event in the wire format."""
    texts = b"".join(varlong(len(text.encode())) + text.encode() for text in (service, host, datacenter))
    return b"\0" + struct.pack(">i", schema_id) + varlong(time_ms) + texts + guid + body


def batch(
    values: Sequence[bytes | None],
    *,
    base_offset: int = 0,
    codec: Compression = Compression.NONE,
    sent_ms: Sequence[int] | None = None,
    appended_ms: int | None = None,
) -> bytes:
    """One record batch of these values, sent at noon or at the times that are given; with `appended_ms` a broker has stamped it."""
    builder = RecordBatchBuilder(base_offset=base_offset, compression=codec, log_append_time_ms=appended_ms)
    for number, value in enumerate(values):
        time_ms = NOON if sent_ms is None else sent_ms[number]
        builder.append(time_ms, b"key" if number % 3 else None, value, [("h", b"x")] if number % 5 == 0 else ())
    return builder.build()


def fetched(*batches: bytes) -> FetchedBatches:
    """What a broker answers with these batches."""
    return FetchedBatches(memoryview(b"".join(batches)), Offset(0), Offset(0), Offset(0))
