"""Counts ride in the versions of a table, and come out of it as the same audit records however often they are asked for."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.lake.loading import audit
from moldau.lake.loading.audit import publish_counts
from moldau.lake.loading.counts import COUNTS_KEY, Counts, added, counts_from_json, counts_to_json
from moldau.lake.loading.data_files import DAY, TIME_FIELDS
from moldau.lake.loading.job import LoadJob
from moldau.lake.tables.committing import commit
from moldau.lake.tables.format import Change
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create
from moldau.model.errors import WorldError
from moldau.tracking.audit_record import AuditRecord
from moldau.tracking.counts import Count, CountKey

names = st.sampled_from(["", "a", "bé"])
keys = st.builds(
    CountKey, st.just("t"), st.integers(-9, 9).map(lambda n: n * 600_000), names, names, names, st.sampled_from(["00ff", "11"])
)
values = st.builds(Count, st.integers(1, 99), st.integers(0, 999), st.integers(0, 2**64 - 1), st.integers(-9, 0), st.integers(1, 9))
counts = st.dictionaries(keys, values, max_size=6)


@given(counts, st.integers(0, 5))
def test_counts_come_back_from_the_words_of_a_version(given_: Counts, untracked: int) -> None:
    words = json.loads(json.dumps(counts_to_json(given_, untracked)))
    assert counts_from_json("t", words) == given_
    assert words["untracked"] == untracked


@given(counts, counts)
def test_counts_of_tasks_add_up(one: Counts, other: Counts) -> None:
    both = added([one, other])
    assert both == added([other, one])
    assert sum(each.count for each in both.values()) == sum(each.count for part in (one, other) for each in part.values())


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

    def load(self, count: int, **words: Any) -> int:
        found = {CountKey("t", 0, "dc", "s", "h", "00ff"): Count(count, 1, 1, 1, 1)}
        metadata = {"moldau.job": "job", "moldau.topic": "t", COUNTS_KEY: counts_to_json(found, 0), **words}
        return commit(self.tables, self.path, Change("LOAD", metadata=metadata))

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


def test_what_could_not_be_published_is_published_by_the_next_load(table: Table) -> None:
    table.load(1)
    table.failure = WorldError("no broker", retriable=True)
    assert publish_counts(table.job, table.tables) == "no broker"
    table.failure = None
    table.load(2)
    assert publish_counts(table.job, table.tables) is None
    assert table.take() == [1, 2]


def test_versions_of_others_are_theirs(table: Table) -> None:
    table.load(1, **{"moldau.job": "another"})
    table.load(2, **{"moldau.topic": "u"})
    commit(table.tables, table.path, Change("OPTIMIZE"))
    publish_counts(table.job, table.tables)
    assert table.take() == []
