"""A connection that a broker accepts before it knows the cluster, as after a restart: the controller, on another broker, sends it the
metadata over such a connection.

Until then every other request waits, for its answer would deny topics, partitions and coordinators that exist, and a topic could be
created that exists. None is handled after another one that waits. Connections of clients that have waited for `WAIT_MAX_S` are closed:
clients take that as the absence of this one broker, and ask another.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.network.connection import Connection
from moldau.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from moldau.broker.network.connection import Services
    from moldau.broker.security import Channel
    from moldau.ports.clock import Timer
    from moldau.ports.transport import Transport

_LOG = logging.getLogger(__name__)

WAIT_MAX_S = 5.0
"""Less than the time that clients wait for a response."""
_NOT_RECEIVED = -1
AT_ONCE = frozenset(
    (
        _NOT_RECEIVED,
        ApiKey.API_VERSIONS,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    )
)
"""Requests that need no metadata, or bring them."""


class EarlyConnection(Connection):
    """See the module."""

    __slots__ = ("_cache", "_timer")

    def __init__(self, broker: "Services", transport: "Transport", channel: "Channel") -> None:
        super().__init__(broker, transport, channel)
        self._cache = broker.cache
        self._timer: Timer | None = None

    def connection_lost(self, error: Exception | None) -> None:
        """Give up what still waits."""
        self._end_wait()
        super().connection_lost(error)

    def _waits(self) -> bool:
        return not self._cache.is_complete and self._reader.next_api not in AT_ONCE

    def _handle_frames(self) -> bool:
        return self._waits() or super()._handle_frames()

    def _is_full(self) -> bool:
        return self._waits() or super()._is_full()

    def _pause(self) -> None:
        super()._pause()
        if self._timer is None and self._paused and self._waits():
            self._timer = self._broker.clock.call_later(WAIT_MAX_S, self._give_up)
            self._cache.on_complete[self._known] = None

    def _known(self) -> None:
        self._end_wait()
        self._resume_later()

    def _give_up(self) -> None:
        self._end_wait()
        _LOG.debug("connection closed, this broker has received no metadata yet: peer=%s:%d", *self._transport.peer)
        self.finish()

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._cache.on_complete.pop(self._known, None)
