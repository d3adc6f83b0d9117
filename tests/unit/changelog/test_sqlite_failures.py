"""What SQLite fails with, as errors of ours: what time heals is tried again."""

import sqlite3
from pathlib import Path
from unittest.mock import Mock

import pytest

from moldau.changelog.sqlite.connecting import connect, failures, writing
from moldau.model.errors import WorldError


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_LOCKED_SHAREDCACHE])
def test_another_process_in_the_way_passes(code: int) -> None:
    """Also one that puts right what a killed one left of the write-ahead log, for which SQLite has a code of its own."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = code
    database = Mock()
    database.execute.side_effect = [error, Mock(fetchone=lambda: (0, "main", "/a.db"))]
    with pytest.raises(WorldError, match="no transaction can begin: database is locked") as begun, writing(database):
        pass
    with pytest.raises(WorldError, match=r"database a\.db: database is locked") as read, failures("a.db"):
        raise error
    assert begun.value.retriable
    assert read.value.retriable


def test_text_that_is_none_is_named(tmp_path: Path) -> None:
    """Python finds that, and not SQLite."""
    database = connect(tmp_path / "a.db", 1.0)
    with pytest.raises(WorldError, match=r"a\.db: Could not decode to UTF-8") as found, failures("a.db"):
        database.execute("SELECT CAST(X'ff' AS TEXT)").fetchone()
    database.close()
    assert not found.value.retriable
