"""Where a job begins is noted until its queries have a batch. No broker is started."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from moldau.lake.reading.offsets import DataLossError, OptionError
from moldau.streams import starts as module
from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.errors import CheckpointError, StreamError
from moldau.streams.inputs import TopicInput
from moldau.streams.starts import noted_starts, starts_now

THEN: Positions = {"flights": {"0": 23, "1": 17}}
NOW: Positions = {"flights": {"0": 40, "1": 30}}


def starts(directory: Path, now: Positions = NOW, *, queries: Sequence[str] = ("counts", "copy")) -> Positions:
    return noted_starts(str(directory), {name: Checkpoint(str(directory / name)) for name in queries}, lambda _: now)


def batch(directory: Path, query: str, kind: str, number: int = 0) -> None:
    """As Spark notes that a batch is planned (`offsets`) or done (`commits`)."""
    (directory / query / kind).mkdir(parents=True, exist_ok=True)
    (directory / query / kind / str(number)).touch()


def test_a_planned_batch_begins_where_it_was_to(tmp_path: Path) -> None:
    """Without a plan it begins where the topic is now; when all queries have a batch, the note is removed."""
    assert starts(tmp_path, THEN) == THEN
    assert starts(tmp_path, THEN) == THEN
    batch(tmp_path, "counts", "offsets")
    assert starts(tmp_path) == THEN, "also for the query that has no plan"
    batch(tmp_path, "counts", "commits")
    assert starts(tmp_path) == THEN, "the other one lacks none of the records that this one has"
    batch(tmp_path, "copy", "offsets")
    batch(tmp_path, "copy", "commits")
    assert starts(tmp_path) == {}
    assert not (tmp_path / "starts.json").exists()


def test_a_query_that_the_job_gets_later_begins_later(tmp_path: Path) -> None:
    """Where the note is still there, since no start has removed it; and its own place is noted, beside that of one which began before."""
    starts(tmp_path, THEN, queries=["counts"])
    batch(tmp_path, "counts", "offsets")
    assert starts(tmp_path, {**NOW, "planes": {"0": 7}}) == {**THEN, "planes": {"0": 7}}
    batch(tmp_path, "counts", "commits")
    batch(tmp_path, "copy", "offsets")
    assert starts(tmp_path) == {**THEN, "planes": {"0": 7}}, "its batch is planned"
    batch(tmp_path, "copy", "commits")
    assert starts(tmp_path, queries=["counts", "copy", "late"]) == NOW


def test_a_note_of_a_former_beginning_counts_no_more(tmp_path: Path) -> None:
    """The checkpoints were set aside, and the job begins at first records: so does its first batch when it is run again."""
    starts(tmp_path, THEN)
    assert starts(tmp_path, {}) == {}
    batch(tmp_path, "counts", "offsets")
    assert starts(tmp_path, {}) == {}


def test_what_needs_no_note_has_none(tmp_path: Path) -> None:
    """A job that begins at first records; and a plan of before there were notes begins now."""
    assert starts(tmp_path, {}) == {}
    assert list(tmp_path.iterdir()) == []
    batch(tmp_path, "counts", "offsets")
    assert starts(tmp_path) == NOW == json.loads((tmp_path / "starts.json").read_text())["starts"]


def test_a_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    batch(tmp_path, "counts", "offsets")
    for text in ("{", "[]", '{"flights": {"0": 5}}'):
        (tmp_path / "starts.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"starts\.json: cannot be read"):
            starts(tmp_path)


def test_a_start_that_is_not_there_is_named_and_not_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that the log has no more, or a topic that does not exist."""
    given = TopicInput("flights", "bytes", None, None, start="latest")
    monkeypatch.setattr(module, "ClusterLog", MagicMock())
    for error in (DataLossError("flights-0: the log holds [8, 20)"), OptionError("subscribe", "there is no topic")):
        monkeypatch.setattr(module, "StreamPlanner", Mock(return_value=Mock(initial=Mock(side_effect=error))))
        with pytest.raises(StreamError, match=f"^topic flights: a query cannot begin at latest: {re.escape(str(error))}"):
            noted_starts(str(tmp_path), {"counts": Checkpoint(str(tmp_path))}, lambda _: starts_now([given], "b:1"))
