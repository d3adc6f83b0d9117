"""What a walk over fetched batches leaves out, where it goes on, and what it refuses."""

import json
from typing import Any

import pytest

from moldau.audit.schemas import TrackedSchemas
from moldau.audit.tally import Tally
from moldau.audit.walker import Walker
from moldau.client.partition_requests import AbortedRecords, FetchedBatches
from moldau.model.errors import CorruptBatchError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import encode_batch
from moldau.protocol.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from moldau.protocol.records.header import HEADER_SIZE, read_header, stamp_crc
from moldau.protocol.records.record import Record
from moldau.registry.client import RegisteredSchema
from moldau.registry.client_errors import RegistryError, RegistryUnavailableError, UnknownSchemaError
from moldau.tracking.header import HEADER_SCHEMA
from support.audit_events import NOON, Host, batch, fetched

EWR = Host()
WHERE = TopicPartition("t", 0)
BOTH = pytest.mark.parametrize("fast", [False, True])


def walked(of: FetchedBatches, offset: int = 0, *, fast: bool = False) -> tuple[int, Tally]:
    walker, tally = Walker(fast=fast), Tally()
    walker.few = 0
    return walker.walk(WHERE, of, offset, tally), tally


def transaction(values: list[bytes], *, base_offset: int, producer: int) -> bytes:
    records = [Record(base_offset + number, NOON, 0, None, value, []) for number, value in enumerate(values)]
    return encode_batch(
        records, base_offset=base_offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )  # fmt: skip


@BOTH
def test_markers_and_aborted_transactions_are_left_out(fast: bool) -> None:
    """A reader of committed records counts what was committed, and goes on behind all of it."""
    values = [EWR.event(number, NOON) for number in range(6)]
    marker = EndTxnMarker(ControlType.ABORT, 0)
    parts = [
        batch(values[:2]),
        transaction(values[2:4], base_offset=2, producer=7),
        transaction(values[4:], base_offset=4, producer=8),
        encode_end_txn_marker(marker, producer_id=7, producer_epoch=0, timestamp=NOON, base_offset=6),
    ]
    of = FetchedBatches(memoryview(b"".join(parts)), Offset(7), Offset(7), Offset(0), (AbortedRecords(7, 2),))
    position, tally = walked(of, fast=fast)
    ((key, count),) = tally.counts().items()
    assert (position, count.count, key.host) == (7, 4, "ewr-1")


@BOTH
def test_a_batch_that_is_cut_off_waits_for_the_next_fetch(fast: bool) -> None:
    """A fetch may end in the middle of a batch; what came before it is counted, and nothing of it."""
    whole, cut = batch([EWR.event(0, NOON)]), batch([EWR.event(1, NOON)], base_offset=1)
    position, tally = walked(fetched(whole, cut[:-1]), fast=fast)
    assert (position, tally.records) == (1, 1)


@BOTH
def test_what_comes_before_damage_is_counted(fast: bool) -> None:
    """One flipped bit is a CorruptBatchError that names the offset, once that batch is the next one; nothing of it is counted."""
    bad = bytearray(batch([EWR.event(1, NOON)] * 3, base_offset=5))
    bad[-1] ^= 1
    walker, tally = Walker(fast=fast), Tally()
    assert walker.walk(WHERE, fetched(batch([EWR.event(0, NOON)] * 5), bytes(bad)), 0, tally) == 5
    assert tally.records == 5
    with pytest.raises(CorruptBatchError, match="batch at offset 5 is damaged: its checksum does not match"):
        walker.walk(WHERE, fetched(bytes(bad), batch([EWR.event(0, NOON)], base_offset=8)), 5, tally)
    assert tally.records == 5


@BOTH
def test_a_batch_that_says_it_has_more_records_is_refused(fast: bool) -> None:
    """Its checksum is right, its count is not."""
    whole = bytearray(batch([EWR.event(0, NOON)] * 5))
    assert read_header(memoryview(whole)).record_count == 5
    whole[57:61] = (6).to_bytes(4, "big")
    stamp_crc(whole)
    with pytest.raises(CorruptBatchError):
        walked(fetched(bytes(whole)), fast=fast)


@BOTH
def test_what_comes_before_malformed_records_is_counted(fast: bool) -> None:
    """The checksum of the second batch is right, its records are none: it stops at that batch, and says so when it is the next one."""
    bad = bytearray(batch([EWR.event(1, NOON)] * 3, base_offset=5))
    bad[HEADER_SIZE:] = b"\xff" * (len(bad) - HEADER_SIZE)
    stamp_crc(bad)
    after = batch([EWR.event(2, NOON)], base_offset=8)
    whole = fetched(batch([EWR.event(0, NOON)] * 3), batch([EWR.event(0, NOON)] * 2, base_offset=3), bytes(bad), after)
    for offset, count in ((0, 5), (2, 3), (3, 2)):
        position, tally = walked(whole, offset, fast=fast)
        assert (position, tally.records) == (5, count)
    tally = Tally()
    with pytest.raises(CorruptBatchError):
        Walker(fast=fast).walk(WHERE, whole, 5, tally)
    assert tally.records == 0


class Registry:
    """Three schemas: one of tracked events, one of others, one of another language."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        tracked = {"type": "record", "name": "E", "fields": [{"name": "header", "type": HEADER_SCHEMA}, {"name": "n", "type": "int"}]}
        other: dict[str, Any] = {"type": "record", "name": "O", "fields": [{"name": "n", "type": "long"}]}
        texts = {1: ("AVRO", tracked), 2: ("AVRO", other), 3: ("JSON", {"type": "object"})}
        if schema_id == 9:
            raise RegistryUnavailableError("nobody answers")
        if schema_id not in texts:
            raise UnknownSchemaError(schema_id)
        kind, schema = texts[schema_id]
        return RegisteredSchema(schema_id, kind, json.dumps(schema))


def test_a_registry_tells_which_schemas_are_those_of_tracked_events() -> None:
    """Each is asked for once, unknown ones again after a while; a registry that does not answer is an error, and not an untracked event."""
    registry, now = Registry(), [0.0]
    schemas = TrackedSchemas(registry, lambda: now[0])  # type: ignore[arg-type]
    assert [schemas(number) for number in (1, 2, 3, 4, 1, 2, 3, 4)] == [True, False, False, False] * 2
    now[0] = 60.0
    assert not schemas(4)
    assert registry.asked == [1, 2, 3, 4, 4]
    tally = Tally()
    Walker(schemas).walk(WHERE, fetched(batch([EWR.event(n, NOON, schema_id=1 + n % 2) for n in range(10)])), 0, tally)
    assert sorted((key.host, count.count) for key, count in tally.counts().items()) == [("", 5), ("ewr-1", 5)]
    with pytest.raises(RegistryUnavailableError):
        Walker(schemas).walk(WHERE, fetched(batch([EWR.event(0, NOON, schema_id=9)])), 0, tally)


@pytest.mark.parametrize(("status", "waited_for"), [(500, True), (503, True), (429, True), (401, False), (404, False)])
def test_a_registry_that_cannot_tell_now_is_waited_for(status: int, waited_for: bool) -> None:
    """One that is just starting answers with an error, which must not end an auditor. One that refuses will do so again."""

    class Refusing:
        def schema(self, schema_id: int) -> RegisteredSchema:
            raise RegistryError(status, status, "not now")

    with pytest.raises(RegistryUnavailableError if waited_for else RegistryError, match="not now"):
        TrackedSchemas(Refusing())(1)  # type: ignore[arg-type]
