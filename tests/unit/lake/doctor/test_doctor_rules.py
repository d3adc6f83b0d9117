"""What is a finding, decided from facts alone: each fact beyond its limit is one, with what it costs and what helps."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from moldau.lake.doctor.facts import FooterFacts, Limits, LogFacts, SmallFiles, TableFacts, UnneededFiles
from moldau.lake.doctor.findings import Check, Severity
from moldau.lake.doctor.rules import findings
from moldau.lake.tables.data_files import DataFile

FILE = DataFile("event_day=1970-01-01/a.parquet", {"event_day": "1970-01-01"}, 1_000, 10, "")
LOG = LogFacts(60, 9_000, 50, 0, 0, None, 0, 0, (), 0)
WELL = TableFacts("t", "delta", 51, 1, 1_000, 10, 1, (), (), None, UnneededFiles(0, 0, 2, 100), LOG, FooterFacts(1, {}, {}, {}, {}))
SMALL = SmallFiles(80, 8_000, 2, 2, "event_day=1970-01-01", 60)


def log(**changes: Any) -> TableFacts:
    return replace(WELL, log=replace(LOG, **changes))


def footers(**changes: Any) -> TableFacts:
    return replace(WELL, footers=replace(WELL.footers, **changes))


def test_a_table_that_is_well_has_no_findings() -> None:
    assert findings(WELL, Limits()) == []
    at_the_limits = log(old_versions=49, old_bytes=1, tombstones=5_000, expired_tombstones=999)
    assert findings(replace(at_the_limits, version=150), Limits()) == []


@pytest.mark.parametrize(
    ("facts", "check", "severity", "repairable", "words"),
    [
        (
            replace(WELL, missing=[FILE]),
            Check.MISSING_FILES,
            "error",
            False,
            "1 file of the newest version is not there: event_day=1970-01",
        ),
        (replace(WELL, missing=[FILE] * 5), Check.MISSING_FILES, "error", False, "5 files .* are not there: .*, and 2 more"),
        (replace(WELL, resized=[(FILE, 999)]), Check.FILE_SIZES, "error", False, "a.parquet has 999 bytes, not 1,000"),
        (footers(damaged={"a": "no magic bytes"}), Check.DAMAGED_FILES, "error", False, "1 file of 1 cannot be read: a: no magic bytes"),
        (footers(row_counts={"a": (9, 10)}), Check.ROW_COUNTS, "error", False, "a has 9, not 10"),
        (footers(unfit={"a": "column n is"}), Check.SCHEMA, "error", False, "1 file of 1 with a column of another type: a: column n is"),
        (footers(beyond={"x": 3, "b": 1}), Check.SCHEMA, "notice", False, "columns in files that the table does not have: b, x"),
        (replace(WELL, small=SMALL), Check.SMALL_FILES, "warning", True, "80 small files in 2 partitions .*, 100 bytes .*01: 60"),
        (replace(WELL, version=151), Check.CHECKPOINT, "warning", True, "101 versions without .*: the last checkpoint .* version 50"),
        (replace(log(checkpoint=None), version=100), Check.CHECKPOINT, "warning", True, "101 versions .*: there is no checkpoint"),
        (log(expired_tombstones=1_000), Check.TOMBSTONES, "warning", True, "1,000 entries of files that were removed more than 7 days ago"),
        (log(old_versions=50, old_bytes=7), Check.OLD_VERSIONS, "warning", True, "50 files of versions that are older than 30 days"),
        (log(unpublished=7), Check.OLD_VERSIONS, "notice", False, "version 7 is older than 30 days and stays"),
        (replace(WELL, unneeded=UnneededFiles(2, 9, 0, 0)), Check.UNNEEDED_FILES, "warning", True, "2 data files that no version of the"),
        (log(leftovers=("_moldau_1.tmp",), leftover_bytes=3), Check.LOG_LEFTOVERS, "warning", True, "1 file of writers that died"),
    ],
)
def test_what_is_a_finding(facts: TableFacts, check: Check, severity: str, repairable: bool, words: str) -> None:
    (found,) = findings(facts, Limits())
    assert (found.check, found.severity.value, found.repairable) == (check, severity, repairable)
    with pytest.raises(ValueError, match=words):
        raise ValueError(found.text)
    assert found.cost
    assert found.remedy


def test_a_manifest_has_no_checkpoint_and_may_have_too_many_files() -> None:
    manifest = replace(WELL, format="parquet", version=9_999, log=replace(LOG, checkpoint=None))
    assert findings(manifest, Limits()) == []
    (found,) = findings(replace(manifest, files=20_001), Limits())
    assert (found.check, found.repairable) == (Check.MANIFEST, False)


def test_the_worst_comes_first() -> None:
    facts = replace(log(unpublished=7, leftovers=("x",)), missing=[FILE], small=SMALL)
    assert [each.severity for each in findings(facts, Limits())] == [Severity.ERROR, *[Severity.WARNING] * 2, Severity.NOTICE]


def test_retentions_that_a_running_load_would_suffer_from_are_refused() -> None:
    with pytest.raises(ValueError, match="an hour at least: a load that runs would lose what it has written"):
        Limits(retention=timedelta(minutes=59))
    with pytest.raises(ValueError, match="a day at least: a suspended writer would commit where no reader looks"):
        Limits(log_retention=timedelta(hours=23))
