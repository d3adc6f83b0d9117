"""The positions that the target has."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.mirror.merge.positions import POSITIONS, Key, Stored, stored_in
from moldau.mirror.reading import read_to_end
from moldau.model.errors import WorldError

if TYPE_CHECKING:
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers


async def read_positions(brokers: "Brokers") -> dict[Key, Stored]:
    """Those of all mirrors, as they are when all transactions have ended that are open now. PeerError, WorldError."""
    found: dict[Key, Stored] = {}
    async for record in read_to_end(brokers, POSITIONS):
        take_positions([record], found)
    return found


def take_positions(records: "Iterable[Record]", into: dict[Key, Stored], mirror: str | None = None) -> None:
    """What the next records of the topic say, of one mirror or of all. WorldError for one that is no position."""
    for record in records:
        try:
            key, stored = stored_in(record)
        except ValueError as error:
            raise WorldError(str(error), retriable=True) from error
        if stored is None:
            into.pop(key, None)
        elif mirror in (None, key.mirror):
            into[key] = stored
