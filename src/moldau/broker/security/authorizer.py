"""Who may do what: the question that requests ask. There are no access control lists yet, and everything is allowed."""

from enum import IntEnum
from typing import Protocol

from moldau.broker.security.channel import Channel


class Operation(IntEnum):
    """Operations, with their numbers in the protocol."""

    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10


class Authorizer(Protocol):
    """Decides by the principal and the address of a channel."""

    def allows(self, channel: Channel, operation: Operation) -> bool:
        """Whether the client may do `operation` on the cluster as a whole."""


class AllowAll:
    """No access control lists."""

    __slots__ = ()

    def allows(self, channel: Channel, operation: Operation) -> bool:
        """True."""
        return True
