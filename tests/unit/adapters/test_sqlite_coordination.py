"""The tree's file survives a crash whole; a file that cannot be used is refused by name. What the tree means: see the contract suite."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.model.errors import CoordinationError
from moldau.ports.coordination import BadVersionError, Create, NodeStat, SetData
from support.trees import AskedTree

OLDER_FILE = Path(__file__).parent / "data" / "coordination-format-2.db"


def now_ms() -> int:
    return 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.db")


@pytest.fixture
def tree(path: str) -> Iterator[AskedTree]:
    tree = AskedTree(path, now_ms)
    yield tree
    tree.close()


def after_a_crash(path: str) -> AskedTree:
    """The tree as a process would find it that starts now, the first one having died."""
    for suffix in ("", "-wal"):
        shutil.copyfile(path + suffix, f"{path}.crashed{suffix}")
    return AskedTree(f"{path}.crashed", now_ms)


def test_a_crash_leaves_every_finished_write_and_no_ephemeral_node(tree: AskedTree, path: str) -> None:
    tree.create("/ids")
    tree.create("/ids/0", b"me", ephemeral=True)
    tree.multi([Create("/topics"), Create("/topics/t", b"x"), SetData("/ids", b"changed")])
    found = after_a_crash(path)
    assert found.get("/topics/t")[0] == b"x"
    assert found.get("/ids")[0] == b"changed"
    assert found.children("/ids") == []
    found.close()


def test_a_multi_that_failed_leaves_nothing_for_the_next_process(tree: AskedTree, path: str) -> None:
    tree.create("/a")
    with pytest.raises(BadVersionError):
        tree.multi([Create("/b"), SetData("/a", b"", 9)])
    found = after_a_crash(path)
    assert found.exists("/b") is None
    found.close()


def test_a_second_process_is_refused(tree: AskedTree, path: str) -> None:
    tree.create("/a")
    with pytest.raises(CoordinationError, match=r"in use by another process; stop .*--data") as refused:
        AskedTree(path, now_ms)
    assert path in str(refused.value)
    tree.create("/still/works", parents=True)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to have a header\n" * 10, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged"):
        AskedTree(path, now_ms)
    assert Path(path).read_bytes() == content


def test_somebody_elses_database_is_refused(path: str) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(CoordinationError, match=r"coordination\.db: an SQLite file, but not one of Moldau's"):
        AskedTree(path, now_ms)


def test_a_file_of_a_later_format_is_refused(path: str) -> None:
    AskedTree(path, now_ms).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=4")
    other.close()
    with pytest.raises(CoordinationError, match="format 4, this version reads 3"):
        AskedTree(path, now_ms)


def test_a_damaged_page_is_reported_with_the_files_name(path: str) -> None:
    tree = AskedTree(path, now_ms)
    tree.multi([Create(f"/n{number}", b"x" * 500) for number in range(200)])
    tree.close()
    size = Path(path).stat().st_size
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (size - 4096))
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged"):
        AskedTree(path, now_ms)


def test_a_missing_directory_is_reported_with_the_files_name(tmp_path: Path) -> None:
    with pytest.raises(CoordinationError, match=r"none/coordination\.db"):
        AskedTree(str(tmp_path / "none" / "coordination.db"), now_ms)


def test_making_the_file_leaves_nothing_beside_it(tree: AskedTree, path: str) -> None:
    names = {entry.name for entry in Path(path).parent.iterdir()}
    assert names <= {"coordination.db", "coordination.db-wal"}


def older_file(path: str, version: int) -> None:
    """A store that a broker of an earlier version left when it crashed; the first format had no checksums."""
    shutil.copyfile(OLDER_FILE, path)
    if version == 1:
        with sqlite3.connect(path) as older:
            older.execute("ALTER TABLE node DROP COLUMN checksum")
            older.execute("PRAGMA user_version=1")
        older.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_earlier_format_is_read_and_brought_to_the_present_one(path: str, version: int) -> None:
    older_file(path, version)
    stats: list[NodeStat] = []
    for _ in range(2):
        found = AskedTree(path, now_ms)
        assert found.get("/brokers/topics/t").data.startswith(b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw"')
        assert found.get("/brokers/topics").data == b"\x01\xff"
        stats.append(found.get("/brokers/topics").stat)
        assert found.children("/brokers/ids") == [], "the node of the session that crashed"
        assert found.children("/") == ["brokers", "config"]
        created_ids = [
            found.get(each).stat.created_id for each in ("/", "/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/t")
        ]
        assert created_ids == [1, 2, 3, 4, 5], "in the order of the paths"
        found.close()
    assert stats[0] == stats[1] == NodeStat(2, 4, stats[0].created_ms, stats[0].modified_ms, 0, 1)
    assert 1_700_000_000_000 < stats[0].created_ms < stats[0].modified_ms < 1_700_000_000_100
    found = AskedTree(path, now_ms)
    found.create("/config/changes/config_change_", sequential=True)
    assert found.children("/config/changes") == ["config_change_0000000000", "config_change_0000000001"]
    found.create("/late", ephemeral=True)
    assert found.get("/late").stat.created_id > 8, "larger than that of every node of the old file"
    assert found.get("/late").stat.owner == found.session_id == 1
    found.close()
    with sqlite3.connect(path) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (3,)
    newer.close()


def test_damage_in_a_file_of_an_earlier_format_is_found_before_it_gets_new_checksums(path: str) -> None:
    older_file(path, 2)
    data = Path(path).read_bytes()
    assert data.count(b"AAECAwQFBgcICQoLDA0ODw") == 1
    damaged = data.replace(b"AAECAwQFBgcICQoLDA0ODw", b"AAECAwQFBgcICQoLDA0ODg")
    Path(path).write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(CoordinationError, match=r"damaged: the checksum of node '/brokers/topics/t'"):
            AskedTree(path, now_ms)


@pytest.mark.parametrize("change", ["value = value - 1", "name = 'other'", "value = CAST(value AS BLOB)"])
def test_a_changed_counter_is_damage(path: str, change: str) -> None:
    """A lower one would give ids out again."""
    tree = AskedTree(path, now_ms)
    tree.create("/a")
    tree.close()
    with sqlite3.connect(path) as other:
        other.execute(f"UPDATE counter SET {change} WHERE name = 'transaction'")
    other.close()
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged: the checksum of a counter"):
        AskedTree(path, now_ms)


def test_a_session_that_crashed_does_not_have_its_id_given_out_again(tree: AskedTree, path: str) -> None:
    tree.create("/a", ephemeral=True)
    found = after_a_crash(path)
    assert found.session_id > tree.session_id
    assert found.exists("/a") is None
    found.close()


def test_a_changed_value_is_found_at_the_start_and_the_way_out_is_named(path: str) -> None:
    """A retention time with another digit is sound to SQLite, and would cost records."""
    tree = AskedTree(path, now_ms)
    tree.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"604800000"}}', parents=True)
    tree.close()
    data = Path(path).read_bytes()
    assert data.count(b"604800000") == 1
    Path(path).write_bytes(data.replace(b"604800000", b"004800000"))
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged: the checksum of node '/config/topics/t'.*backup.*--adopt"):
        AskedTree(path, now_ms)


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(path: str, suffix: str, kind: str, tmp_path: Path) -> None:
    AskedTree(path, now_ms).close()
    place = Path(path + suffix)
    place.unlink(missing_ok=True)
    if kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(CoordinationError, match=rf"coordination\.db{suffix}: is not a regular file; move it away"):
        AskedTree(path, now_ms)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("change", ["data = CAST(data AS TEXT)", "path = CAST(path AS BLOB)"])
def test_bytes_that_became_text_are_damage_although_the_checksum_matches(path: str, change: str) -> None:
    """One flipped bit of a row's header does this."""
    tree = AskedTree(path, now_ms)
    tree.create("/a", b"x")
    tree.close()
    with sqlite3.connect(path) as other:
        other.execute(f"UPDATE node SET {change} WHERE path = '/a'")
    other.close()
    with pytest.raises(CoordinationError, match=r"coordination\.db: damaged"):
        AskedTree(path, now_ms)
