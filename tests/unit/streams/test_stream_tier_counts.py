"""What a job publishes as a tier: claims, counts of batches and marks. Without Spark; the audit topic is a list."""

import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.audit.tiers import TierCounts
from moldau.lake.counts import counts_to_json
from moldau.lake.reading.offsets import OffsetRange
from moldau.model.errors import WorldError
from moldau.model.identity import TopicPartition
from moldau.streams import tier
from moldau.streams.checkpoints import Checkpoint, PlannedBatch
from moldau.streams.errors import StreamError
from moldau.streams.outputs import BatchNumber
from moldau.streams.tier import JobTier, TierPlan, counts_of_batch
from moldau.tracking.audit_record import AuditRecord
from moldau.tracking.counts import Count, CountKey

KEY = CountKey("t", 600_000, "dc", "service", "host", "00000000000000ff")
PLAN = TierPlan("stream-j", {"early": {}, "first": {"t": 0}, "second": {"t": 1}})


class World:
    """The audit topic, and where the log of the topic ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[AuditRecord] = []
        self.end = 0
        self.is_away = False
        self.is_made = False
        monkeypatch.setattr(tier, "read_claims", self._read)
        monkeypatch.setattr(tier, "publish", lambda _brokers, _client, records: self._publish(records))
        monkeypatch.setattr(tier, "ensure_audit_topic", lambda _: self._make())
        monkeypatch.setattr(tier, "publish_claim", self._claim)
        monkeypatch.setattr(
            tier, "ClusterLog", lambda *_, **__: SimpleNamespace(cluster=None, partition_counts=self._one, offsets=self._ends)
        )

    def job(self, plan: TierPlan = PLAN) -> JobTier:
        return JobTier("j", "b:1", plan)

    def _read(self, _cluster: object, _topics: object, _into: TierCounts) -> TierCounts:
        found = TierCounts()
        for record in self.records:
            found.take(record, 1)
        return found

    def _make(self) -> None:
        self.is_made = True

    def _publish(self, records: Iterable[AuditRecord]) -> None:
        assert self.is_made, "there is no audit topic"
        self.records.extend(records)

    def _claim(self, _brokers: str, _client: str, name: str, topic: str, owner: str) -> None:
        self._make()
        self.records.append(AuditRecord.of_tier(name, topic, time_ms=1, owner=owner))

    def _one(self, _topics: object) -> dict[str, int]:
        if self.is_away:
            raise WorldError("no broker answers", retriable=True)
        return {"t": 1}

    def _ends(self, times: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(times, self.end)

    @property
    def marks(self) -> list[int | None]:
        return [record.counted_ms for record in self.records if record.counted_ms is not None]

    @property
    def counted(self) -> int:
        """As the audit has it."""
        found = self._read(None, (), TierCounts())
        return sum(entry.count.count for entry in found.counts.get("stream-j", {}).values())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def planned(*ends: int) -> PlannedBatch:
    """A batch by the end of each of its inputs."""
    return PlannedBatch(0, 600_001, {}, tuple({"t": {"0": end, "id": "a1"}} for end in ends))


def number(run: str, batch: int, plan: PlannedBatch) -> BatchNumber:
    return BatchNumber("j", "first", run, batch, plan)


START = planned(5).inputs[0]


def read(*bounds: tuple[int, int]) -> dict[OffsetRange, dict[str, Any]]:
    """What tasks leave of ranges that are full of events."""
    return {
        OffsetRange("t", 0, start, end): counts_to_json({KEY: Count(end - start, 100, 7, 600_000, 600_000)}, 0, 0) for start, end in bounds
    }


def publish(job: JobTier, run: str, batch: int, before: int, end: int) -> None:
    """A batch with the events before these offsets."""
    counted = counts_of_batch(read((before, end)), "t", 0, planned(end), planned(before).inputs[0])
    job.publish(number(run, batch, planned(end)), {"t": counted}, {"topic out": 3})


def test_a_topic_is_counted_by_the_first_query_that_reads_it(world: World, tmp_path: Path) -> None:
    """Or by the one whose checkpoint has claimed it, wherever the queries stand in the job's file now."""
    job = world.job()
    job.begin({"early": None, "first": None, "second": "r2"})
    orders = {name: job.of_query(None, name, (), Checkpoint(str(tmp_path))) for name in PLAN.inputs}
    batch = number("r1", 0, planned(5))
    assert [name for name, each in orders.items() if each.begin(batch)] == ["first"]
    again = world.job(TierPlan("stream-j", {"second": {"t": 1}, "first": {"t": 0}}))
    again.begin({"first": "r1", "second": "r2"})
    orders = {name: again.of_query(None, name, (), Checkpoint(str(tmp_path))) for name in ("second", "first")}
    assert [name for name, each in orders.items() if each.begin(batch)] == ["first"]


def test_another_checkpoint_is_refused(world: World) -> None:
    """Also one that was faster between the start and the first batch."""
    job = world.job()
    job.begin({"early": None, "first": None, "second": None})
    world.records.append(AuditRecord.of_tier("stream-j", "t", time_ms=1, owner="stream job other, checkpoint r9"))
    with pytest.raises(StreamError, match=r"counts topic t for stream job other, checkpoint r9: .* moldau audit forget --tier stream-j"):
        job.claim(["t"], "r1")
    with pytest.raises(StreamError, match="counts topic t for stream job other"):
        world.job().begin({"early": "r1", "first": "r1", "second": None})


def test_a_tier_of_an_auditor_is_refused(world: World) -> None:
    world.records.append(AuditRecord("open", "g", 1, "stream-j", CountKey("", 0, "", "", "", "stream-j")))
    with pytest.raises(StreamError, match="tier stream-j is an auditor's: give the job another one"):
        world.job().begin({"early": None, "first": None, "second": None})


def test_a_batch_that_is_published_twice_counts_once(world: World) -> None:
    """Until the counts are taken back: then what follows counts, under the epoch that began then."""
    job = world.job()
    job.begin({"early": None, "first": None, "second": None})
    job.claim(["t"], "r1")
    for batch, before, end in ((0, 0, 5), (0, 0, 5), (1, 5, 7)):
        publish(job, "r1", batch, before, end)
    assert world.counted == 7
    world.records.append(AuditRecord.of_tier("stream-j", "t", time_ms=1, forgets=True))
    assert world.counted == 0
    publish(job, "r1", 2, 7, 9)
    assert world.counted == 0, "it was on its way when they were taken back"
    job.claim(["t"], "r1")
    publish(job, "r1", 3, 9, 10)
    assert world.counted == 1
    (rows,) = {each.key for each in world.records if not each.key.instance and each.count}
    assert rows == CountKey("topic out", 600_000, "", "", "", "")


def test_rows_of_a_query_that_counts_no_topic_are_published_first(world: World) -> None:
    """It may have its batch before another one has claimed anything, in a cluster that has no audit topic yet."""
    job = world.job()
    job.begin({"early": None, "first": None, "second": None})
    job.publish(number("r0", 0, planned(5)), {}, {"topic out": 3})
    assert [each.count.count for each in world.records] == [3]


def test_a_mark_vouches_for_what_the_log_had_when_it_was_asked(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Claim: there is a mark only when all that the log had at its time is published, however much comes meanwhile."""
    job = world.job()
    job.begin({"early": None, "first": None, "second": None})
    job.mark()
    assert world.marks == [], "nothing is claimed"
    job.claim(["t"], "r1")
    world.end = 10
    publish(job, "r1", 0, 0, 5)
    job.mark()
    assert world.marks == [], "five are missing"
    world.end = 1000
    publish(job, "r1", 1, 5, 10)
    job.mark()
    (first,) = world.marks
    job.mark()
    assert world.marks == [first], "not again before something has changed, or half a minute"
    world.is_away = True
    publish(job, "r1", 2, 10, 1000)
    with caplog.at_level(logging.WARNING):
        job.mark()
    assert "up to when it has counted was not published" in caplog.text
    world.is_away = False
    job.mark()
    assert len(world.marks) == 2


def test_a_mark_does_not_wait_for_a_batch_that_is_being_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: where the audit topic does not take it, the thread that reports is not held up, or the job would seem to be silent."""
    job = world.job()
    job.begin({"early": None, "first": None, "second": None})
    job.claim(["t"], "r1")
    marking = threading.Thread(target=job.mark, daemon=True)

    def slow(*_: object) -> None:
        marking.start()
        marking.join(5)
        assert not marking.is_alive()

    monkeypatch.setattr(tier, "publish", slow)
    publish(job, "r1", 0, 0, 5)
    assert world.marks == []


def test_a_batch_counts_what_its_input_was_to_read() -> None:
    """The first input of two; not what tasks of an earlier batch have left late. What is not there is named."""
    found = read((0, 5), (5, 8), (8, 12), (5, 12))
    assert counts_of_batch(found, "t", 0, planned(8, 12), START).counts[KEY].count == 3
    assert counts_of_batch(found, "t", 1, planned(8, 12), START).counts[KEY].count == 7
    first = counts_of_batch(found, "t", 0, planned(12), {})
    assert (first.counts[KEY].count, first.ends) == (12, {"0": 12})
    short = counts_of_batch(read((5, 6)), "t", 0, planned(8), START)
    assert (short.counts, short.uncounted) == ({}, ["t-0"])
    assert counts_of_batch({}, "t", 0, planned(8), START).uncounted == ["t-0"]
    nothing = counts_of_batch({}, "t", 0, planned(8), {})
    assert (nothing.counts, nothing.uncounted) == ({}, []), "an empty partition that is new"
    assert counts_of_batch({}, "t", 0, planned(8), planned(8).inputs[0]).uncounted == []
