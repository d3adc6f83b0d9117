"""Transactions that have come from the stream, until they are published together."""

import time
from typing import Final

from moldau.changelog.postgres.transactions import Transaction

BATCH_CHANGES: Final = 2_000
"""Transactions that have come already are published together up to so many changes."""
BATCH_BYTES: Final = 16 << 20
"""Or of messages of so many bytes."""
BATCH_AGE_S: Final = 0.05
"""Or until the first of them has waited so long."""


class Batch:
    """See the module."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self._changes = self._size = 0
        self._since = 0.0

    def add(self, transaction: Transaction) -> None:
        """Another one."""
        if not self.transactions:
            self._since = time.monotonic()
        self.transactions.append(transaction)
        self._changes += len(transaction.changes)
        self._size += transaction.size

    def is_due(self) -> bool:
        """Whether they have to be published now."""
        return self._changes >= BATCH_CHANGES or self._size >= BATCH_BYTES or time.monotonic() - self._since > BATCH_AGE_S

    def take(self) -> list[Transaction]:
        """All of them; none are left."""
        taken, self.transactions, self._changes, self._size = self.transactions, [], 0, 0
        return taken
