"""A promotion that is not in the log is withdrawn, but not from under a client that has written since."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.sqlite import connecting, promotion
from moldau.changelog.sqlite.connecting import connect
from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.sqlite.installing import install
from moldau.changelog.sqlite.layout import is_source


@pytest.fixture
def promoted(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A former replica, which has become a source after commit 5, and has published nothing."""
    database = connect(tmp_path / "copy.db", 5.0)
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    install(database, "bank", 0, promoted_after=CommitRecord(0, 1, 5, 0, {}, {}))
    yield database
    database.close()


def test_a_promotion_is_withdrawn(promoted: sqlite3.Connection, tmp_path: Path) -> None:
    promotion._withdraw(tmp_path / "copy.db", "bank", 0)
    assert not is_source(promoted)


def test_what_a_client_writes_at_the_last_moment_is_not_made_a_row_of_a_replica(
    promoted: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in no commit, and no compaction or load would ever remove it."""

    @contextmanager
    def overtaken(database: sqlite3.Connection) -> Iterator[None]:
        promoted.execute("INSERT INTO items VALUES (1)")
        with connecting.writing(database):
            yield

    monkeypatch.setattr(promotion, "writing", overtaken)
    with pytest.raises(SourceError, match="only a replica can be promoted"):
        promotion._withdraw(tmp_path / "copy.db", "bank", 0)
    assert is_source(promoted)
