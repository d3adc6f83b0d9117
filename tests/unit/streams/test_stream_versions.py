"""The version of a store is noted once for a batch, whichever task comes first."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from moldau.streams.errors import CheckpointError
from moldau.streams.lookups import key_rows
from moldau.streams.versions import TaskBatch, noted


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a job with one query, in its second generation too."""
    for place, run in (("counts", "r1"), ("@2/counts", "r2")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "metadata").write_text(json.dumps({"id": run}))
    return tmp_path


def test_the_first_task_notes_the_version_and_all_others_read_it(directory: Path) -> None:
    """Of many at once each is given the same one; a batch that is run again too; the next batch has its own."""
    found: list[Any] = []
    gate = threading.Barrier(8)

    def task(number: int) -> None:
        gate.wait()
        found.append(noted(str(directory), "planes", TaskBatch("r1", 17), lambda: {"version": number}))

    threads = [threading.Thread(target=task, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({each["version"] for each in found}) == 1
    again = noted(str(directory), "planes", TaskBatch("r1", 17), lambda: pytest.fail("it is noted already"))
    assert again == found[0]
    assert noted(str(directory), "planes", TaskBatch("r1", 18), lambda: {"version": 99}) == {"version": 99}
    assert noted(str(directory), "airports", TaskBatch("r1", 17), lambda: {"offsets": {"0": 3}}) == {"offsets": {"0": 3}}
    assert noted(str(directory), "planes", TaskBatch("r2", 17), lambda: {"version": 1}) == {"version": 1}
    folder = directory / "counts" / "versions"
    assert sorted(each.name for each in folder.iterdir()) == ["17-airports.json", "17-planes.json", "18-planes.json"]
    assert (directory / "@2" / "counts" / "versions" / "17-planes.json").exists()
    noted(str(directory), "planes", TaskBatch("r1", 217), lambda: {"version": 100})
    assert not (folder / "17-planes.json").exists(), "notes of the last 200 batches are kept"


def test_a_note_is_on_disk_before_a_row_is_looked_up(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file before it has its name; then its folder, and the folder in which that one was made."""
    synced: list[str] = []
    fsync = os.fsync

    def noticed(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), directory))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noticed)
    noted(str(directory), "planes", TaskBatch("r1", 17), lambda: {"version": 8})
    parent, note, folder = synced
    assert (parent, os.path.dirname(note), folder) == ("counts", "counts/versions", "counts/versions")
    noted(str(directory), "planes", TaskBatch("r1", 18), lambda: {"version": 9})
    assert len(synced) == 5, "the folder was there"


def test_what_is_wrong_with_notes_is_named(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint of id r9; all processes of Spark have to see the directory"):
        noted(str(directory), "planes", TaskBatch("r9", 1), dict)
    with pytest.raises(CheckpointError, match="cannot be read by a task: no such file or directory"):
        noted(str(tmp_path / "elsewhere"), "planes", TaskBatch("r1", 1), dict)
    (directory / "counts" / "versions").mkdir()
    (directory / "counts" / "versions" / "3-planes.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"3-planes\.json: the version of the batch cannot be noted or read"):
        noted(str(directory), "planes", TaskBatch("r1", 3), dict)


def test_rows_are_found_by_one_key_or_several() -> None:
    """A key that is null, or not there, has no row."""
    assert key_rows({"a": 0, "b": 1}, [pa.array(["b", None, "c", "a", "b"])]).to_pylist() == [1, None, None, 0, 1]
    pairs = [pa.array(["a", "a", None]), pa.array([1, 2, 1])]
    assert key_rows({("a", 1): 7, ("b", 2): 8}, pairs).to_pylist() == [7, None, None]
