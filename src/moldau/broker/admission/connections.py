"""How many connections there are, in all and from each address, and which new one is refused.

The server asks before it makes a connection of an accepted socket. What the process's limit of open files allows is a bound of the server's
own; `max.connections` -1 leaves the number to that.
"""

from collections import Counter
from typing import TYPE_CHECKING

from moldau.model.config.validators import address_limits

if TYPE_CHECKING:
    from moldau.model.config.store import BrokerConfig

UNLIMITED = 2**31 - 1


class ConnectionQuota:
    """See the module. Invariant: `held` is the sum of the connections of all addresses."""

    def __init__(self) -> None:
        self.held = 0
        self.refused = 0
        self.files_max = UNLIMITED
        """Connections that the process's open files have room for."""
        self._connections_max = UNLIMITED
        self._per_ip_max = UNLIMITED
        self._overrides: dict[str, int] = {}
        self._per_ip: Counter[str] = Counter()

    def configure(self, config: "BrokerConfig") -> None:
        """Take the bounds that `config` sets now; connections that are there stay."""
        self._connections_max = config.int("max.connections")
        self._per_ip_max = config.int("max.connections.per.ip")
        self._overrides = address_limits(config.string("max.connections.per.ip.overrides"))

    @property
    def limit(self) -> int:
        """Connections at once."""
        return self.files_max if self._connections_max < 0 else self._connections_max

    def admit(self, ip: str) -> tuple[str, int] | None:
        """Count a connection from this address; or the setting at which it is refused, and its value."""
        refusal = None
        if self.held >= self.limit:
            refusal = ("max.connections", self.limit)
        elif self._per_ip.get(ip, 0) >= (most := self._overrides.get(ip, self._per_ip_max)):
            refusal = ("max.connections.per.ip", most)
        if refusal is not None:
            self.refused += 1
            return refusal
        self.held += 1
        self._per_ip[ip] += 1
        return None

    def release(self, ip: str) -> None:
        """A connection that was admitted has ended."""
        self.held -= 1
        if self._per_ip[ip] > 1:
            self._per_ip[ip] -= 1
        else:
            del self._per_ip[ip]
