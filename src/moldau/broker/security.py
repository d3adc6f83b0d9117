"""Who is at the other end of a connection, and who may do what. There are no access control lists yet, and everything is allowed."""

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from moldau.cluster.snapshot import Endpoint

if TYPE_CHECKING:
    from moldau.model.config.store import BrokerConfig

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, as Kafka names it."""


class Channel:
    """One client's connection: where it comes from, and as whom. It does not change."""

    __slots__ = ("advertised", "listener", "number", "peer", "principal")

    def __init__(self, listener: str, peer: tuple[str, int], advertised: Endpoint, number: int = 0, principal: str = ANONYMOUS) -> None:
        self.listener = listener
        """Name of the listener that the client connected to."""
        self.peer = peer
        """Address of the client."""
        self.advertised = advertised
        """Where clients of this listener reach this broker."""
        self.number = number
        """Number of the connection; one that was made later has a higher number."""
        self.principal = principal


def may_be_broker(config: "BrokerConfig", channel: Channel) -> bool:
    """Whether a connection came in by the listener of brokers, where one is named (`inter.broker.listener.name`)."""
    listener = config.optional_string("inter.broker.listener.name")
    return listener is None or channel.listener == listener.upper()


class Operation(IntEnum):
    """Operations, with their numbers in the protocol."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_OBJECT = (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE)
TOPIC_OPERATIONS: Final = _bits(*_OBJECT, *_CONFIGS, Operation.READ, Operation.WRITE, Operation.DELETE)
"""Operations that a client may do on a topic, as bits (KIP-430): all that a topic knows."""
CLUSTER_OPERATIONS: Final = _bits(*_OBJECT, *_CONFIGS, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE)
GROUP_OPERATIONS: Final = _bits(*_CONFIGS, Operation.READ, Operation.DELETE, Operation.DESCRIBE)
NOT_ASKED: Final = -2_147_483_648
"""In an answer to a client that did not ask for them."""


if TYPE_CHECKING:

    class Authorizer(Protocol):
        """Decides by the principal and the address of a channel.

        Who takes an operation away from a client afterwards counts up the broker's `PermitEpoch`: the shortest way of Produce does not ask
        again before that.
        """

        def allows(self, channel: Channel, operation: Operation, topic: str | None = None) -> bool:
            """Whether the client may do `operation` on a topic, or on the cluster as a whole."""


class AllowAll:
    """No access control lists."""

    __slots__ = ()

    def allows(self, channel: Channel, operation: Operation, topic: str | None = None) -> bool:
        """True."""
        return True
