"""Transactions that change a published database of PostgreSQL all the time, in a thread of their own."""

import random
import threading
from typing import Any

import psycopg

from support.postgres_changelog import PublishedDatabase

SCHEMA = """
CREATE TABLE items (id integer PRIMARY KEY, name text, stock integer);
CREATE TABLE moves (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item integer, by integer);
"""
MOVED = 1_000_000
"""Is added to the id of an item whose key is changed."""


class Load:
    """Each changes an item and adds a move; some delete items, or change their keys, and with `large_every` some change so many items.

    A connection that ends is made again: what a transaction had done then is in the database or not, as the server has decided.
    """

    def __init__(self, database: PublishedDatabase, rows: int, seed: int, *, large_every: int = 0, large: int = 0) -> None:
        self._database, self._rows = database, rows
        self._large_every, self._large = large_every, large
        self._chosen = random.Random(seed)
        self._done = threading.Event()
        self.transactions = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                with self._database.server.connect(self._database.name) as connection:
                    while not self._done.is_set():
                        with connection.transaction():
                            self._transaction(connection)
                        self.transactions += 1
                        self._done.wait(0.002)
            except psycopg.OperationalError:
                self._done.wait(0.05)

    def _transaction(self, connection: "psycopg.Connection[Any]") -> None:
        item, by = self._chosen.randrange(self._rows), self._chosen.randrange(-5, 6)
        connection.execute("UPDATE items SET stock = stock + %s WHERE id = %s", [by, item])
        connection.execute("INSERT INTO moves (item, by) VALUES (%s, %s)", [item, by])
        if self.transactions % 10 == 0:
            connection.execute("DELETE FROM items WHERE id = %s", [self._chosen.randrange(self._rows)])
        if self.transactions % 15 == 0:
            connection.execute(f"UPDATE items SET id = id + {MOVED} WHERE id = %s", [self._chosen.randrange(self._rows)])
        if self._large_every and self.transactions % self._large_every == 0:
            connection.execute("UPDATE items SET stock = stock + 1 WHERE id < %s", [self._large])

    def stop(self) -> None:
        self._done.set()
        self._thread.join()
