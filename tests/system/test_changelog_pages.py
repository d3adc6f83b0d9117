"""The programs in the page about changelogs do what the page says."""

import sqlite3
from pathlib import Path

import pytest

from moldau.testing.broker import Broker
from support.changelog_log import read_log
from support.pages import ROOT, block_with

pytestmark = pytest.mark.system

PAGE = ROOT / "docs" / "changelog.md"


def test_the_programs_of_the_page_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    database.close()
    with Broker() as broker:
        for words in ("Store(", "Publisher("):
            exec(block_with(PAGE, "python", words).replace("127.0.0.1:9092", broker.bootstrap_servers), {})
        for changelog, table in (("shop", "orders"), ("stock", "items")):
            found = read_log(broker.bootstrap_servers, changelog, table)
            found.check()
            assert [change.key for change in found.all_changes()] == [(1,)]
