"""What peers take of the broker, in one place: connections, memory, time on its thread, state; what waits for it, and what is refused.

* `connections`: how many there are, in all and from each address. The server asks before it makes a connection of an accepted socket. What
  the process's limit of open files allows is a bound of the server's own; `max.connections` -1 leaves the number to that.
* `limits`: bounds of one request and of one connection, and of all fetches that wait.
* `memory`: bytes of requests that are received and not handled yet.
* `slices`: time on the broker's thread, for what takes longer than a millisecond.
* `long_request`: elements of decoded requests. Produce and Fetch have pools of their own, because the handlers of other requests may wait
  for the disk for seconds.
* `state`: memory of what outlives a request, groups and transactions. Their owners count it, see `admission.state`.
"""

import sys
from collections import Counter
from typing import TYPE_CHECKING

from moldau.broker.admission.elements import ElementPools, LongRequest
from moldau.broker.admission.memory import RequestMemory
from moldau.broker.admission.slices import SliceScheduler
from moldau.broker.admission.state import StateBudgets
from moldau.model.config.validators import address_limits
from moldau.model.value import Value

if TYPE_CHECKING:
    from moldau.broker.admission.memory import Holder
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock

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


class RequestLimits(Value):
    """See docs/limits.md."""

    request_bytes_max: int
    """Bytes of a request's frame."""
    decoded_bytes_max: int
    """Bytes of a request that are not records."""
    decoded_elements_max: int
    """Elements of all arrays of a request."""
    requests_in_flight_max: int
    """Requests of one connection that wait for their responses."""
    queued_bytes_max: int
    """Bytes of responses that a connection may leave unread."""
    fetch_bytes_max: int
    """Bytes of records in one Fetch response."""
    fetches_waiting_max: int
    """Partitions of all fetches that wait."""


def request_limits(config: "BrokerConfig") -> RequestLimits:
    """The bounds that `config` sets now."""
    return RequestLimits(
        config.int("socket.request.max.bytes"),
        config.int("request.decoded.max.bytes"),
        config.int("request.decoded.elements.max"),
        config.int("connection.max.in.flight.requests"),
        config.int("connection.queued.max.bytes"),
        config.int("fetch.max.bytes"),
        config.int("delayed.requests.max"),
    )


class Admission:
    """See the module."""

    def __init__(self, clock: "Clock", config: "BrokerConfig") -> None:
        self.connections = ConnectionQuota()
        self.memory = RequestMemory(clock)
        self.slices = SliceScheduler(clock)
        self.data = ElementPools()
        """Of Produce and Fetch."""
        self.state = StateBudgets(config, clock.monotonic)
        self.others = ElementPools()
        self.limits: RequestLimits
        self.configure(config)

    def configure(self, config: "BrokerConfig") -> None:
        """Take the bounds that `config` sets now."""
        self.limits = request_limits(config)
        self.connections.configure(config)
        queued_max = config.int("queued.max.request.bytes")
        self.memory.bytes_max = sys.maxsize if queued_max < 0 else queued_max
        self.memory.incomplete_max_s = config.int("incomplete.request.timeout.ms") / 1000

    def long_request(self, holder: "Holder", size: int) -> LongRequest:
        """A long request of `size` bytes, which count for the connection `holder` until `LongRequest.end`; the caller sees to that."""
        return LongRequest(self.memory, holder, size, self.others, self.limits.decoded_elements_max)

    def long_data_request(self, holder: "Holder", size: int) -> LongRequest:
        """The same for Produce and Fetch."""
        return LongRequest(self.memory, holder, size, self.data, self.limits.decoded_elements_max)

    @property
    def waiting(self) -> int:
        """Long requests that wait, undecoded."""
        return self.data.waiting + self.others.waiting

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {"requests_sliced": self.slices.running, **self.memory.statistics()}
