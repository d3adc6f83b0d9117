"""Where a job begins is noted until its queries have a batch. No broker is started."""

import json
from pathlib import Path

import pytest

from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.errors import CheckpointError
from moldau.streams.starts import noted_starts

THEN: Positions = {"flights": {"0": 23, "1": 17}}
NOW: Positions = {"flights": {"0": 40, "1": 30}}


def starts(directory: Path, now: Positions = NOW) -> Positions:
    return noted_starts(str(directory), [Checkpoint(str(directory / name)) for name in ("counts", "copy")], lambda: now)


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
    assert starts(tmp_path) == NOW, "the other one begins now"
    batch(tmp_path, "copy", "offsets")
    batch(tmp_path, "copy", "commits")
    assert starts(tmp_path) == {}
    assert not (tmp_path / "starts.json").exists()


def test_what_needs_no_note_has_none(tmp_path: Path) -> None:
    """A job that begins at first records; and a plan of before there were notes begins now."""
    assert starts(tmp_path, {}) == {}
    assert list(tmp_path.iterdir()) == []
    batch(tmp_path, "counts", "offsets")
    assert starts(tmp_path) == NOW == json.loads((tmp_path / "starts.json").read_text())


def test_a_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    batch(tmp_path, "counts", "offsets")
    (tmp_path / "starts.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"starts\.json: cannot be read or written"):
        starts(tmp_path)
