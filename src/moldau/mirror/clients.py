"""How a mirror's programs reach its clusters."""

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from moldau.wire.brokers import Brokers

if TYPE_CHECKING:
    from moldau.ports.transport import Network
    from moldau.wire.connection import Address

FRAME_BYTES_MAX = 128 * 1024 * 1024
"""Of a response."""


class Client(NamedTuple):
    """The surroundings of the connections to one cluster."""

    name: str
    network: "Network"
    servers: "tuple[Address, ...]"
    random: Random


def brokers_of(name: str, network: "Network", servers: "tuple[Address, ...]", random: Random) -> Brokers:
    """A cluster, for the client of this name."""
    return Brokers(Client(name, network, servers, random), frame_bytes_max=FRAME_BYTES_MAX)
