"""A shop's SQLite database, and a copy of it elsewhere that follows each commit.

    python examples/replicated_sqlite.py --bootstrap 127.0.0.1:9092 --directory /tmp/shop

Writes orders to `shop.db`, whose changes go to the changelog `shop`; a replica applies them to `copy.db`, waits for the last commit (so that
it reads what was just written), and is compared with the source by checksums of ranges of keys.
"""

import argparse
from pathlib import Path

from moldau.changelog import Replica, SqliteStore, compare
from moldau.changelog.sqlite import Store

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--directory", required=True, type=Path, help="where both databases lie")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    source, copy = str(given.directory / "shop.db"), str(given.directory / "copy.db")
    import sqlite3

    with sqlite3.connect(source) as database:
        database.execute(ORDERS)
    with Store(source, given.bootstrap, "shop", tables=["orders"]) as store:
        last = take_orders(store)
    with Replica(given.bootstrap, "shop", SqliteStore(copy)) as replica:
        position = replica.wait_for(shard=0, commit=last)
        print(f"the copy is {position.phase.value} at commit {position.commit}")
    for row in sqlite3.connect(copy).execute("SELECT id, item, pieces FROM orders ORDER BY id"):
        print(*row)
    differences = list(compare(SqliteStore(source), SqliteStore(copy), shard=0, table="orders"))
    print("equal" if not differences else "\n".join(map(str, differences)))
