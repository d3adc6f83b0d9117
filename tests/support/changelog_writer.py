"""A process that writes and publishes a database until it is killed: ``python changelog_writer.py PATH BOOTSTRAP SEED``.

It prints the number of each commit that is acknowledged. Of its transactions some are our own, and some are
those of a writer that knows nothing of changelogs.
"""

import random
import sqlite3
import sys

from moldau.changelog.sqlite import Store

CHANGELOG = "killed"
ROWS = 40
OWN_EVERY = 3


def statements(chosen: random.Random) -> list[tuple[str, tuple[object, ...]]]:
    """Of one transaction."""
    made: list[tuple[str, tuple[object, ...]]] = []
    for _ in range(chosen.choice((1, 2, 5, 30))):
        key, value = chosen.randrange(ROWS), chosen.randrange(1000)
        made.append(
            chosen.choice(
                [
                    ("INSERT OR REPLACE INTO items (id, name, price) VALUES (?, ?, ?)", (key, str(value % 50), value)),
                    ("UPDATE OR IGNORE items SET id = ?, price = ? WHERE id = ?", (key, value, value % ROWS)),
                    ("UPDATE items SET price = ? WHERE id = ?", (value, key)),
                    ("DELETE FROM items WHERE id = ?", (key,)),
                    ("INSERT INTO notes (item, text) VALUES (?, ?)", (key, "x" * value)),
                    ("DELETE FROM notes WHERE item = ?", (key,)),
                ]
            )
        )
    return made


def main(path: str, bootstrap: str, seed: int) -> None:
    """Until it is killed."""
    chosen = random.Random(seed)
    with Store(path, bootstrap, CHANGELOG, topic_configs={"segment.bytes": "1048576"}) as store:
        other = sqlite3.connect(path, isolation_level=None, timeout=30.0)
        while True:
            if chosen.randrange(OWN_EVERY):
                with store.transaction() as transaction:
                    for each in statements(chosen):
                        transaction.execute(*each)
                number = transaction.commit
            else:
                other.execute("BEGIN IMMEDIATE")
                for each in statements(chosen):
                    other.execute(*each)
                other.execute("COMMIT")
                number = None
            print(store.publish(number), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
