"""The programs in the page about changelogs do what the page says."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from moldau.changelog import DeltaStore, Replica, SqliteStore
from moldau.changelog.sqlite import Store
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
        for words in ("store.transaction()", "Publisher("):
            exec(block_with(PAGE, "python", words).replace("127.0.0.1:9092", broker.bootstrap_servers), {})
        for changelog, table in (("shop", "orders"), ("stock", "items")):
            found = read_log(broker.bootstrap_servers, changelog, table)
            found.check()
            assert [change.key for change in found.all_changes()] == [(1,)]


def test_the_programs_of_the_pages_promote_and_read_delta_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    replicas = ROOT / "docs" / "changelog-replicas.md"
    with sqlite3.connect("shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        database.execute("INSERT INTO orders VALUES (1, 'tea')")
    database.close()
    with Broker() as broker:
        at = broker.bootstrap_servers
        with Store("shop.db", at, "shop") as store:
            number = store.publish()
        for copy in (SqliteStore("copy.db"), DeltaStore("lake/shop")):
            with Replica(at, "shop", copy) as replica:
                replica.wait_for(0, number)
        found: dict[str, Any] = {}
        for page, words in ((PAGE, "promote("), (PAGE, "masters("), (replicas, "DeltaTable(")):
            exec(block_with(page, "python", words).replace("127.0.0.1:9092", at), found)
        found["store"].close()
        assert found["addresses"] == ["node2:7001"]
        assert found["orders"].to_pylist() == [{"id": 1, "item": "tea"}]
