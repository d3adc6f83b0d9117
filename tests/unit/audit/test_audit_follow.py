"""Reading the audit topic: what is new, and all of it again where what was read is not what is there any more. And the room's own order."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau import audit
from moldau.audit.follow import read_audit
from moldau.audit.tiers import TierCounts
from moldau.client.errors import failure
from moldau.client.metadata import PartitionMetadata, TopicMetadata
from moldau.client.partition_requests import EARLIEST, FetchedBatches, ListedOffset
from moldau.model.errors import ErrorCode
from moldau.model.identity import BrokerId, Offset, TimestampMs, TopicPartition
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import HEADER_SIZE, stamp_crc, stamp_log_append_time
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.counts import Count, CountKey
from support.audit_events import NOON

ME = BrokerId(1)
WHERE = TopicPartition(AUDIT_TOPIC, 0)


def counts(number: int, topic: str = "departures") -> AuditRecord:
    """The n-th record: one event."""
    key = CountKey(topic, NOON, "ewr", "departures", "ewr-1", "ab" * 8)
    return AuditRecord.of_counts("producer", key, Count(1, 10, number, NOON, NOON), time_ms=NOON + number, guid=f"{number:032x}")


class Log:
    """An audit topic of one partition, each record in a batch of its own."""

    def __init__(self, *records: AuditRecord, topic_id: bytes = b"1" * 16, at_ms: int | None = None) -> None:
        self.topic_id = topic_id
        self.first = 0
        self.batches: list[bytes] = []
        self.asked: list[int] = []
        self.forgotten = 0
        self.at_ms = at_ms
        self.before_fetch: Callable[[], object] = lambda: None
        for record in records:
            self.add(record)

    def add(self, record: AuditRecord) -> None:
        builder = RecordBatchBuilder(base_offset=len(self.batches))
        builder.append(record.time_ms, record.record_key, record.to_bytes(), ())
        made = bytearray(builder.build())
        if self.at_ms is not None:
            stamp_log_append_time(made, self.at_ms)
        self.batches.append(bytes(made))

    def topic(self, name: str) -> TopicMetadata:
        assert name == AUDIT_TOPIC
        return TopicMetadata(name, self.topic_id, False, (PartitionMetadata(0, ME, 0, (ME,), (ME,), (), ErrorCode.NONE),), ErrorCode.NONE)

    def forget_topic(self, _: str) -> None:
        self.forgotten += 1

    def list_offsets(self, wanted: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, ListedOffset]:
        ends = {where: self.first if at == EARLIEST else len(self.batches) for where, at in wanted.items()}
        return {where: ListedOffset(Offset(end), TimestampMs(-1), 0) for where, end in ends.items()}

    def fetch(self, topic: str, partition: int, offset: int, _: Any) -> FetchedBatches:
        end = Offset(len(self.batches))
        return FetchedBatches(memoryview(self.batches[offset]), end, end, Offset(self.first))

    def fetch_many(self, positions: dict[TopicPartition, int], _: Any) -> dict[TopicPartition, FetchedBatches]:
        self.before_fetch()
        at = positions[WHERE]
        self.asked.append(at)
        if at < self.first:
            raise failure(ErrorCode.OFFSET_OUT_OF_RANGE, WHERE)
        end = Offset(len(self.batches))
        return {WHERE: FetchedBatches(memoryview(b"".join(self.batches[at:])), end, end, Offset(self.first))}


def read(log: Log, into: TierCounts | None = None, **more: Any) -> TierCounts:
    cluster: Any = log
    return read_audit(cluster, into, **more)


def events(found: TierCounts) -> int:
    return sum(told.count.count for told in found.counts.get("producer", {}).values())


def test_only_what_is_new_is_read() -> None:
    log = Log(counts(1), counts(2))
    found = read(log)
    log.add(counts(3))
    assert read(log, found) is found
    read(log, found)
    assert (log.asked, events(found)) == ([0, 2], 3)


def test_an_audit_topic_that_was_made_anew_is_read_from_its_beginning() -> None:
    """Also if it has as many records as the former one had."""
    found = read(Log(counts(1), counts(2)))
    log = Log(counts(3), counts(4), counts(5), topic_id=b"2" * 16)
    read(log, found)
    assert (events(found), log.forgotten, log.asked) == (3, 1, [0])


def test_an_audit_topic_whose_log_was_cut_is_read_from_its_beginning() -> None:
    """What was read of its end is not there: whoever looks anew must not see something else."""
    log = Log(counts(1), counts(2), counts(3))
    found = read(log)
    del log.batches[1:]
    read(log, found)
    assert events(found) == 1


def test_retention_may_be_at_work_while_it_is_read() -> None:
    log = Log(*(counts(number) for number in range(5)))

    def cut() -> None:
        log.first = 3

    log.before_fetch = cut
    found = read(log)
    assert (events(found), log.asked, found.forgotten_ms) == (2, [0, 3], {"departures": NOON + 3})


def test_what_is_stale_is_read_again_and_not_too_often() -> None:
    log = Log(counts(1))
    found = read(log)
    found.stale = True
    read(log, found)
    assert (log.asked, events(found), found.stale) == ([0, 0], 1, False)
    found.stale = True
    read(log, found)
    assert log.asked == [0, 0]


def test_a_damaged_batch_is_skipped_loudly_when_it_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(counts(1), counts(2), counts(3))
    log.batches[1] = log.batches[1][:-1] + bytes([log.batches[1][-1] ^ 1])
    found = read(log)
    (skipped,) = found.unreadable
    assert (events(found), skipped.offset, log.asked) == (2, 1, [0, 1, 1, 1, 2])
    assert "audit records skipped: partition=_audit-0 offset=1 up_to=2 reason=" in caplog.text
    log.batches[1] = log.batches[1][:16] + b"\x09" + log.batches[1][17:]
    again = read(log)
    assert (events(again), [each.offset for each in again.unreadable]) == (2, [1]), "nobody knows where it ends: looked for behind it"


def test_a_batch_that_says_another_offset_hides_nothing() -> None:
    """No checksum covers it: what came after it seemed to be read already."""
    log = Log(*map(counts, range(5)))
    log.batches[1] = (1000).to_bytes(8, "big") + log.batches[1][8:]
    found = read(log)
    assert (events(found), [each.offset for each in found.unreadable]) == (4, [1])


def test_a_batch_whose_records_are_none_is_skipped_whole() -> None:
    """Its checksum is right, so anybody may have written it: it ended every reading of the audit."""
    log = Log(counts(1), counts(2), counts(3))
    bad = bytearray(log.batches[1])
    bad[HEADER_SIZE:] = b"\xff" * (len(bad) - HEADER_SIZE)
    stamp_crc(bad)
    log.batches[1] = bytes(bad)
    found = read(log)
    assert (events(found), [each.offset for each in found.unreadable]) == (2, [1])


def test_only_the_counts_of_a_topic() -> None:
    log = Log(counts(1), counts(2, "arrivals"), counts(3))
    assert events(read(log, wanted=lambda key, _value: key == b"arrivals")) == 1


def test_when_something_was_told_is_the_brokers_time() -> None:
    """A host whose clock is wrong says when it thinks that it was."""
    (told,) = read(Log(counts(1), at_ms=NOON + 5_000)).counts["producer"].values()
    assert (told.changed_ms, told.lag_ms) == (NOON + 5_000, 5_000)
    (told,) = read(Log(counts(1))).counts["producer"].values()
    assert told.changed_ms == NOON + 1


def test_no_module_of_the_room_stands_on_one_that_stands_on_it() -> None:
    """Imports within functions, and for types alone, are imports too."""
    folder = Path(audit.__file__).parent
    stands_on = {
        path.stem: {
            node.module.rpartition(".")[2]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("moldau.audit.")
        }
        for path in folder.glob("*.py")
    }
    while free := {name for name, others in stands_on.items() if not others & stands_on.keys()}:
        for name in free:
            del stands_on[name]
    assert stands_on == {}
