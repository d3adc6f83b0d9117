"""The tree's file survives a crash whole; a file that cannot be used is refused by name. What the tree means: see the contract suite."""

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
    with pytest.raises(CoordinationError, match="in use by another process") as refused:
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
        other.execute("PRAGMA user_version=2")
    other.close()
    with pytest.raises(CoordinationError, match="format 2, this version reads 1"):
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
