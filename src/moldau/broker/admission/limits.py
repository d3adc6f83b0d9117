"""Bounds of requests and responses, from the broker's configuration; replaced as a whole when that changes."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from moldau.model.config.store import BrokerConfig


class RequestLimits(NamedTuple):
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
