"""The tree's file survives a crash whole; a file that cannot be used is refused by name. What the tree means: see the contract suite."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.adapters.sqlite_coordination import SqliteCoordination
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import BadVersionError, Create, SetData


def now_ms() -> int:
    return 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.db")


@pytest.fixture
def tree(path: str) -> Iterator[SqliteCoordination]:
    tree = SqliteCoordination(path, now_ms)
    yield tree
    tree.close()


def after_a_crash(path: str) -> SqliteCoordination:
    """The tree as a process would find it that starts now, the first one having died."""
    for suffix in ("", "-wal"):
        shutil.copyfile(path + suffix, f"{path}.crashed{suffix}")
    return SqliteCoordination(f"{path}.crashed", now_ms)


def test_a_crash_leaves_every_finished_write_and_no_ephemeral_node(tree: SqliteCoordination, path: str) -> None:
    tree.create("/ids")
    tree.create("/ids/0", b"me", ephemeral=True)
    tree.multi([Create("/topics"), Create("/topics/t", b"x"), SetData("/ids", b"changed")])
    found = after_a_crash(path)
    assert found.get("/topics/t")[0] == b"x"
    assert found.get("/ids")[0] == b"changed"
    assert found.children("/ids") == []
    found.close()


def test_a_multi_that_failed_leaves_nothing_for_the_next_process(tree: SqliteCoordination, path: str) -> None:
    tree.create("/a")
    with pytest.raises(BadVersionError):
        tree.multi([Create("/b"), SetData("/a", b"", 9)])
    found = after_a_crash(path)
    assert found.exists("/b") is None
    found.close()


def test_a_second_process_is_refused(tree: SqliteCoordination, path: str) -> None:
    tree.create("/a")
    with pytest.raises(CoordinationError, match=r"in use by another process; stop .*--data") as refused:
        SqliteCoordination(path, now_ms)
    assert path in str(refused.value)
    tree.create("/still/works", parents=True)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to have a header\n" * 10, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged"):
        SqliteCoordination(path, now_ms)
    assert Path(path).read_bytes() == content


def test_somebody_elses_database_is_refused(path: str) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(CoordinationError, match=r"coordination\.db: an SQLite file, but not one of Moldau's"):
        SqliteCoordination(path, now_ms)


def test_a_file_of_a_later_format_is_refused(path: str) -> None:
    SqliteCoordination(path, now_ms).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=3")
    other.close()
    with pytest.raises(CoordinationError, match="format 3, this version reads 2"):
        SqliteCoordination(path, now_ms)


def test_a_damaged_page_is_reported_with_the_files_name(path: str) -> None:
    tree = SqliteCoordination(path, now_ms)
    tree.multi([Create(f"/n{number}", b"x" * 500) for number in range(200)])
    tree.close()
    size = Path(path).stat().st_size
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (size - 4096))
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged"):
        SqliteCoordination(path, now_ms)


def test_a_missing_directory_is_reported_with_the_files_name(tmp_path: Path) -> None:
    with pytest.raises(CoordinationError, match=r"none/coordination\.db"):
        SqliteCoordination(str(tmp_path / "none" / "coordination.db"), now_ms)


def test_making_the_file_leaves_nothing_beside_it(tree: SqliteCoordination, path: str) -> None:
    names = {entry.name for entry in Path(path).parent.iterdir()}
    assert names <= {"coordination.db", "coordination.db-wal"}


def test_a_file_without_checksums_gets_them(path: str) -> None:
    """What the first format had, as a broker of that time left it."""
    tree = SqliteCoordination(path, now_ms)
    tree.create("/a", b"x")
    tree.close()
    with sqlite3.connect(path) as older:
        older.execute("ALTER TABLE node DROP COLUMN checksum")
        older.execute("PRAGMA user_version=1")
    older.close()
    for _ in range(2):
        found = SqliteCoordination(path, now_ms)
        assert found.get("/a")[0] == b"x"
        found.close()
    with sqlite3.connect(path) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (2,)
    newer.close()


def test_a_changed_value_is_found_at_the_start_and_the_way_out_is_named(path: str) -> None:
    """A retention time with another digit is sound to SQLite, and would cost records."""
    tree = SqliteCoordination(path, now_ms)
    tree.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"604800000"}}', parents=True)
    tree.close()
    data = Path(path).read_bytes()
    assert data.count(b"604800000") == 1
    Path(path).write_bytes(data.replace(b"604800000", b"004800000"))
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged: the checksum of node '/config/topics/t'.*backup.*--adopt"):
        SqliteCoordination(path, now_ms)


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(path: str, suffix: str, kind: str, tmp_path: Path) -> None:
    SqliteCoordination(path, now_ms).close()
    place = Path(path + suffix)
    place.unlink(missing_ok=True)
    if kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(CoordinationError, match=rf"coordination\.db{suffix}: is not a regular file; move it away"):
        SqliteCoordination(path, now_ms)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("change", ["data = CAST(data AS TEXT)", "path = CAST(path AS BLOB)"])
def test_bytes_that_became_text_are_damage_although_the_checksum_matches(path: str, change: str) -> None:
    """One flipped bit of a row's header does this."""
    tree = SqliteCoordination(path, now_ms)
    tree.create("/a", b"x")
    tree.close()
    with sqlite3.connect(path) as other:
        other.execute(f"UPDATE node SET {change} WHERE path = '/a'")
    other.close()
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged"):
        SqliteCoordination(path, now_ms)
