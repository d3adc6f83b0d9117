"""Whether this broker reaches others: half of them at least have answered.

They are asked again and again, as brokers are that are watched, until that is so or nothing depends on it any more.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from moldau.broker.peers.connection import PeerCallError, PeerConnection
from moldau.broker.peers.watch import ASKED_SHARE, ask

if TYPE_CHECKING:
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.snapshot import BrokerInfo
    from moldau.ports.clock import Clock, Timer


class Reach:
    """Calls `reached` once half of some brokers have answered; see the module."""

    def __init__(
        self,
        connect: "Connect",
        clock: "Clock",
        brokers: "Iterable[BrokerInfo]",
        *,
        timeout_s: Callable[[], float],
        reached: Callable[[], object],
    ) -> None:
        """`timeout_s`: how long an answer may take. `reached` is not called from here."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._reached = reached
        self._answers = 0
        self._is_closed = False
        self._timers: dict[PeerConnection, Timer] = {}
        self._connections = [connect(each, "reach") for each in brokers]
        for connection in self._connections:
            self._ask(connection)

    def close(self) -> None:
        """Ask no more."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        for connection in self._connections:
            connection.close()

    def _ask(self, connection: PeerConnection) -> None:
        self._timers.pop(connection, None)
        ask(connection, partial(self._answered, connection), self._timeout_s())

    def _answered(self, connection: PeerConnection, outcome: Any) -> None:
        if self._is_closed:
            return
        if isinstance(outcome, PeerCallError):
            self._timers[connection] = self._clock.call_later(self._timeout_s() * ASKED_SHARE, partial(self._ask, connection))
            return
        self._answers += 1
        if self._answers * 2 >= len(self._connections):
            self.close()
            self._reached()
