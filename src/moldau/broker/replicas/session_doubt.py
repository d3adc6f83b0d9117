"""Whether this broker may still lead: its session with the tree, judged by its own clock.

A session that this broker cannot reach ends elsewhere without a word, and others are elected. The tree counts from the last sign of life
that reached it, which may be older than SUSPENDED by the time that a client takes to notice: two thirds of the session's timeout
(ZooKeeper's read timeout). So from a third of the timeout after SUSPENDED, less a margin, leaders of partitions with other replicas are in
doubt: nothing is committed, and nothing with acks all acknowledged. CONNECTED ends that; at EXPIRED they give up their leadership until the
controller's next statement.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.model.errors import ErrorCode, PeerError
from moldau.ports.coordination import SessionEvent, SessionState
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.ports.clock import Clock, Timer

UNNOTICED_PART = 2 / 3
"""Of the session's timeout: the time without contact after which a client is SUSPENDED."""
MARGIN_PART = 1 / 10
"""Of the session's timeout: for clocks that run apart, and for turns of this broker."""


class SessionDoubt:
    """See the module."""

    def __init__(self, replicas: "ReplicaManager", clock: "Clock", session_timeout_s: Callable[[], float]) -> None:
        """`session_timeout_s`: what is asked for."""
        self._replicas = replicas
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._granted_s: float | None = None
        """The session's timeout, where it is not the one that was asked for."""
        self._timer: Timer | None = None
        self.in_doubt = False

    def heard(self, event: object) -> None:
        """Of what comes from the tree, take what becomes of the session."""
        if not isinstance(event, SessionEvent):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        match event.state:
            case SessionState.CONNECTED:
                self._granted_s = None if event.granted_ms is None else event.granted_ms / 1000
                self._doubt(False)
            case SessionState.SUSPENDED:
                timeout_s = self._session_timeout_s() if self._granted_s is None else self._granted_s
                delay_s = timeout_s * (1 - UNNOTICED_PART - MARGIN_PART)
                self._timer = self._clock.call_later(delay_s, lambda: self._doubt(True))
            case SessionState.EXPIRED:
                self._expire()
            case SessionState.CLOSED:
                pass  # by this broker, which stops

    def close(self) -> None:
        """Do nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _doubt(self, in_doubt: bool) -> None:
        if in_doubt != self.in_doubt:
            self.in_doubt = in_doubt
            if in_doubt:
                reached("cluster: a broker doubted its session")
            self._replicas.doubt_session(in_doubt)

    def _expire(self) -> None:
        error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session with the coordination tree has expired")
        for hosted in self._replicas.partitions:
            if len(hosted.machine.replicas) > 1:
                reached("cluster: a leader's session expired")
                self._replicas.lose_leadership(hosted, error)
        self._doubt(False)
