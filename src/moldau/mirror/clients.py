"""How a mirror's programs reach its clusters."""

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.plan.values import LIMITS, Limits
from moldau.wire.brokers import Brokers, ConnectionWatch

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


def brokers_of(
    name: str,
    network: "Network",
    servers: "tuple[Address, ...]",
    random: Random,
    limits: Limits = LIMITS,
    watch: ConnectionWatch | None = None,
) -> Brokers:
    """A cluster, for the client of this name."""
    return Brokers(
        Client(name, network, servers, random),
        frame_bytes_max=FRAME_BYTES_MAX,
        backoff_s=limits.retry_backoff_ms / 1000,
        backoff_max_s=limits.retry_backoff_max_ms / 1000,
        watch=watch,
    )
