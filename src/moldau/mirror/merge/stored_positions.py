"""The positions that the target has."""

from typing import TYPE_CHECKING

from moldau.mirror.merge.positions import POSITIONS, Key, Stored, stored_in
from moldau.mirror.reading import read_to_end
from moldau.model.errors import WorldError

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers


async def read_positions(brokers: "Brokers") -> dict[Key, Stored]:
    """Those of all mirrors, as they are when all transactions have ended that are open now. PeerError, WorldError."""
    found: dict[Key, Stored] = {}
    async for record in read_to_end(brokers, POSITIONS):
        try:
            key, stored = stored_in(record)
        except ValueError as error:
            raise WorldError(str(error), retriable=True) from error
        if stored is None:
            found.pop(key, None)
        else:
            found[key] = stored
    return found
