"""Counts ride in the versions of a table, and come out of it as the same audit records however often they are asked for."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.audit import claims
from moldau.audit.tiers import TierCounts
from moldau.lake.counts import (
    COUNTS_KEY,
    Counts,
    added,
    counts_from_json,
    counts_to_json,
    latencies_from_json,
    untracked_from_json,
)
from moldau.lake.loading import audit
from moldau.lake.loading.audit import keep_counts, own_tier, publish_counts
from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJob
from moldau.lake.tables import manifest
from moldau.lake.tables.committing import commit
from moldau.lake.tables.data_files import DAY, TIME_FIELDS
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create
from moldau.model.errors import WorldError
from moldau.tracking.audit_record import AuditRecord
from moldau.tracking.counts import Count, CountKey
from moldau.tracking.latencies import BUCKETS, Latencies

names = st.sampled_from(["", "a", "bé"])
keys = st.builds(
    CountKey, st.just("t"), st.integers(-9, 9).map(lambda n: n * 600_000), names, names, names, st.sampled_from(["00ff", "11"])
)
values = st.builds(Count, st.integers(1, 99), st.integers(0, 999), st.integers(0, 2**64 - 1), st.integers(-9, 0), st.integers(1, 9))
counts = st.dictionaries(keys, values, max_size=6)
latencies = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 99), min_size=1, max_size=4).map(Latencies.of)


@given(counts, st.integers(0, 5))
def test_counts_come_back_from_the_words_of_a_version(given_: Counts, untracked: int) -> None:
    words = json.loads(json.dumps(counts_to_json(given_, untracked, 7 * untracked)))
    assert counts_from_json("t", words) == given_
    assert words["untracked"] == untracked
    key = CountKey("t", 1_200_000, "", "", "", "")
    told = {key: Count(untracked, 7 * untracked, 0, 1_200_001, 1_200_001)} if untracked else {}
    assert untracked_from_json("t", words, 1_200_001) == told


@given(st.dictionaries(st.integers(-9, 9).map(lambda n: n * 600_000), latencies, max_size=3), st.integers(0, 2**41), st.integers(0, 90_000))
def test_latencies_come_back_as_those_to_the_commit(given_: dict[int, Latencies], planned_ms: int, later_ms: int) -> None:
    """Claim: tasks know when the load was planned, and not yet when it is committed: that much later the rows are in the table."""
    words = json.loads(json.dumps(counts_to_json({}, 0, 0, latencies=given_, seen_ms=planned_ms)))
    assert latencies_from_json(words, planned_ms) == {start: each.later_by(0) for start, each in given_.items()}
    assert latencies_from_json(words, planned_ms + later_ms) == {start: each.later_by(later_ms) for start, each in given_.items()}
    assert latencies_from_json(counts_to_json({}, 0, 0), planned_ms) == {}


@given(counts, counts)
def test_counts_of_tasks_add_up(one: Counts, other: Counts) -> None:
    both = added([one, other])
    assert both == added([other, one])
    assert sum(each.count for each in both.values()) == sum(each.count for part in (one, other) for each in part.values())


def test_a_load_reads_of_the_audit_topic_only_what_concerns_its_claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each load reads what was published since the one before: nearly all of it are counts, to parse which took it seconds."""
    filters: list[Callable[[bytes | None, bytes | None], bool]] = []

    def read_audit(_cluster: object, into: TierCounts, wanted: Callable[[bytes | None, bytes | None], bool]) -> TierCounts:
        filters.append(wanted)
        return into

    monkeypatch.setattr(claims, "read_audit", read_audit)
    job = LoadJob("job", "b:1", "t", str(tmp_path / "t"), str(tmp_path / "dead"), registry="http://r", tier="lake")
    monkeypatch.setattr(audit, "_publish_claim", lambda _job, _table_id: None)
    own_tier(job, "id", cast("Any", None))
    (wanted, *_) = filters
    key, count = CountKey("t", 0, "dc", "s", "h", "00ff"), Count(7, 1, 1, 1, 1)
    increment = AuditRecord.of_counts("local", key, count, time_ms=1)
    of_tier = [
        AuditRecord.of_tier("lake", "t", time_ms=1, owner="job"),
        AuditRecord.of_tier("lake", "t", time_ms=1, counted_ms=1),
        AuditRecord.of_tier("lake", "t", time_ms=1, forgets=True),
        AuditRecord("open", "g", 1, "local", CountKey("t", 0, "", "", "", "id")),
        replace(increment, owner="job"),
        replace(increment, forgets=True),
    ]
    for counted in (increment, replace(increment, dead_letters=1), replace(increment, epoch="e")):
        assert not wanted(b"t", counted.to_bytes())
    for record in of_tier:
        assert wanted(b"t", record.to_bytes())
        assert not wanted(b"u", record.to_bytes())
    assert wanted(b"t", json.dumps(json.loads(increment.to_bytes())).encode()), "of another's making: it has to be read to know"
    assert wanted(b"t", None)


def test_counts_are_not_sent_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand counts were 14,000 batches, each of which every replica had to take."""
    made = MagicMock()
    monkeypatch.setattr("moldau.client.producer.Producer", made)
    job = LoadJob("job", "b:1", "t", "table", "dead", registry="http://r", tier="lake")
    key = CountKey("t", 0, "dc", "s", "h", "00ff")
    mark = AuditRecord.of_tier("lake", "t", time_ms=1, counted_ms=1)
    monkeypatch.setattr(audit, "ensure_audit_topic", lambda _servers: None)
    audit._publish(job, [AuditRecord.of_counts("lake", key, Count(7, 1, 1, 1, 1), time_ms=1), mark])
    assert made.call_args.kwargs["linger_ms"] >= 10
    sends = [name for name, _, _ in made.return_value.__enter__.return_value.method_calls]
    assert sends == ["send", "flush", "send", "flush"], "and the last ones do not wait"


class Table:
    """A table with versions that hold counts, and an audit that records what it is sent."""

    def __init__(self, kind: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables, self.path = format_named(kind), path
        open_or_create(self.tables, path, pa.schema([("n", pa.int64()), *TIME_FIELDS]), [DAY], "")
        self.job = LoadJob("job", "b:1", "t", path, f"{path}-dead", registry="http://r", tier="lake", table_format=kind)
        self.sent: list[AuditRecord] = []
        self.failure: Exception | None = None
        monkeypatch.setattr(audit, "_publish", self._publish)

    def _publish(self, job: LoadJob, records: list[AuditRecord]) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent += records

    def load(self, count: int, words: dict[str, Any] | None = None, *, untracked: int = 0) -> int:
        found = {CountKey("t", 0, "dc", "s", "h", "00ff"): Count(count, 1, 1, 1, 1)}
        metadata = {"moldau.job": "job", "moldau.topic": "t", COUNTS_KEY: counts_to_json(found, untracked, 9 * untracked), **(words or {})}
        return commit(self.tables, self.path, TableChange("LOAD", metadata=metadata))

    def take(self) -> list[int]:
        """The counts that were published since the last time."""
        found, self.sent = [each.count.count for each in self.sent], []
        return found


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(request.param, str(tmp_path / "table"), monkeypatch)


def test_each_version_is_published_and_not_again_once_that_is_known(table: Table) -> None:
    table.load(1)
    table.load(2)
    assert publish_counts(table.job, table.tables) is None
    assert table.take() == [1, 2]
    table.load(3)
    publish_counts(table.job, table.tables)
    publish_counts(table.job, table.tables)
    assert table.take() == [3]


def test_a_versions_latencies_are_published_under_one_guid(table: Table) -> None:
    """Claim: as its counts are: however often they are published, they are the same records, and the audit takes them once."""
    words = counts_to_json({}, 0, 0, latencies={600_000: Latencies.of({53: 7})}, seen_ms=0)
    table.load(1, {COUNTS_KEY: words})
    found = TierCounts()
    for _ in range(2):
        for note in Path(table.path, "_moldau").glob("*.json"):
            note.unlink()
        publish_counts(table.job, table.tables)
    for record in table.sent:
        assert AuditRecord.from_bytes(record.to_bytes()) == record
        found.take(record)
    assert (len(table.sent), [each.total for each in found.latencies.values()], found.tiers) == (2, [7], ())


def test_after_a_crash_the_same_records_are_published_again(table: Table) -> None:
    """The note is lost: the guids are the same, and so the audit takes them once."""
    table.load(1)
    publish_counts(table.job, table.tables)
    first = list(table.sent)
    (note,) = Path(table.path, "_moldau").iterdir()
    note.unlink()
    table.load(2)
    publish_counts(table.job, table.tables)
    again = table.sent[len(first) :]
    assert [each.to_bytes() for each in again[:1]] == [each.to_bytes() for each in first]
    assert len({each.guid for each in again}) == 2, "two versions count the same window, and are two increments"
    note.write_text("{")
    table.take()
    publish_counts(table.job, table.tables)
    assert table.take() == [1, 2], "a damaged note is none"


def test_a_note_from_before_it_named_the_topic_still_counts(table: Table) -> None:
    """After an upgrade only what is new is published, not all that the table still has the words of."""
    table.load(1)
    table.load(2)
    note = Path(table.path, "_moldau", f"published-{blake2b(b'job', digest_size=8).hexdigest()}.json")
    note.parent.mkdir()
    opened = table.tables.open(table.path)
    assert opened is not None
    note.write_text(json.dumps({"table": opened.id, "job": "job", "tier": "lake", "version": 2}))
    publish_counts(table.job, table.tables)
    assert table.take() == []
    table.load(3)
    publish_counts(table.job, table.tables)
    assert table.take() == [3]
    table.load(4)
    publish_counts(table.job, table.tables)
    assert table.take() == [4], "the new note comes before the old one"
    publish_counts(replace(table.job, tier="other"), table.tables)
    assert table.take() == [1, 2, 3, 4], "of another tier"


def test_what_could_not_be_published_is_published_by_the_next_load(table: Table) -> None:
    table.load(1)
    table.failure = WorldError("no broker", retriable=True)
    assert publish_counts(table.job, table.tables) == "no broker"
    table.failure = None
    table.load(2)
    assert publish_counts(table.job, table.tables) is None
    assert table.take() == [1, 2]


def test_versions_of_others_are_theirs(table: Table) -> None:
    table.load(1, {"moldau.job": "another"})
    table.load(2, {"moldau.topic": "u"})
    commit(table.tables, table.path, TableChange("OPTIMIZE"))
    publish_counts(table.job, table.tables)
    assert table.take() == []


def test_what_is_no_tracked_event_is_told_as_the_auditor_tells_it(table: Table) -> None:
    """Broken events arrive too: the report has them for each tier, beside a topic that is complete."""
    table.load(1, untracked=3)
    table.load(2)
    publish_counts(table.job, table.tables)
    again = [record.guid for record in table.sent]
    found = TierCounts()
    for record in table.sent:
        found.take(AuditRecord.from_bytes(record.to_bytes()))
    untracked = found.untracked["lake", "t"]
    assert (untracked.count, untracked.bytes) == (3, 27)
    assert sum(told.count.count for told in found.counts["lake"].values()) == 3
    (note,) = Path(table.path, "_moldau").iterdir()
    note.unlink()
    table.sent.clear()
    publish_counts(table.job, table.tables)
    assert [record.guid for record in table.sent] == again


def test_two_topics_of_a_job_in_one_table_are_noted_apart(table: Table) -> None:
    """The one that is published first sees the other's version; it must not note it as done."""
    other = replace(table.job, topic="u")
    table.load(1)
    table.load(2, {"moldau.topic": "u"})
    publish_counts(table.job, table.tables)
    publish_counts(other, table.tables)
    assert table.take() == [1, 2]


def test_no_load_pushes_counts_out_of_the_table_that_the_audit_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest keeps the words of some versions only; without their counts the audit would tell of a loss that is none."""
    monkeypatch.setattr(manifest, "VERSIONS_KEPT", 4)
    table = Table("parquet", str(tmp_path / "table"), monkeypatch)
    table.failure = WorldError("no broker", retriable=True)
    table.load(1)
    keep_counts(table.job, table.tables)
    table.load(2)
    with pytest.raises(
        LoadError,
        match=r"versions above -1 could not be published to the audit, and the table keeps those of 4 versions only: .*\(no broker\)",
    ):
        keep_counts(table.job, table.tables)
    keep_counts(replace(table.job, tier=None), table.tables)
    table.failure = None
    keep_counts(table.job, table.tables)
    assert table.take() == [1, 2]
    table.load(3)
    keep_counts(table.job, table.tables)
    assert table.take() == [], "there is time"


def test_a_table_that_keeps_its_words_for_weeks_does_not_wait_for_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("delta", str(tmp_path / "table"), monkeypatch)
    table.failure = WorldError("no broker", retriable=True)
    for _ in range(5):
        table.load(1)
    keep_counts(table.job, table.tables)
