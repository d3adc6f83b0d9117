"""A shop's SQLite database, and a copy of it elsewhere that follows each commit.

    python examples/replicated_sqlite.py --bootstrap 127.0.0.1:9092 --directory /tmp/shop

Writes orders to `shop.db`, whose changes go to the changelog `example-shop`; a replica applies them to `copy.db`, and waits for the last
commit, so that it has the rows that were just written.
"""

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

from moldau.changelog import Replica, SqliteStore
from moldau.changelog.sqlite import Store

CHANGELOG = "example-shop"
ORDERS = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, pieces INTEGER NOT NULL)"


def take_orders(store: Store) -> int:
    """Three transactions: orders come, one changes, one is cancelled; the number of the last commit."""
    with store.transaction() as transaction:
        transaction.executemany("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", [(1, "tea", 2), (2, "rice", 1), (3, "salt", 5)])
    with store.transaction() as transaction:
        transaction.execute("UPDATE orders SET pieces = pieces + 1 WHERE item = 'tea'")
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM orders WHERE item = 'rice'")
    store.publish(transaction.commit)
    return int(transaction.commit)


def orders(path: Path) -> list[tuple[int, str, int]]:
    """All of a database."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT id, item, pieces FROM orders ORDER BY id").fetchall()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--directory", required=True, type=Path, help="where both databases lie")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    shop, copy = given.directory / "shop.db", given.directory / "copy.db"
    with closing(sqlite3.connect(shop)) as database:
        database.execute(ORDERS)
    with Store(str(shop), given.bootstrap, CHANGELOG, tables=["orders"]) as store:
        last = take_orders(store)
    with Replica(given.bootstrap, CHANGELOG, SqliteStore(str(copy))) as replica:
        position = replica.wait_for(shard=0, commit=last)
        print(f"the copy is {position.phase.value} at commit {position.commit}")
    for row in orders(copy):
        print(*row)
    print("the same as in the shop" if orders(copy) == orders(shop) else "NOT the same as in the shop")
