"""Registers this broker in the cluster, again in each session: an ephemeral node, whose `created_id` is the broker's incarnation.

The broker that makes a cluster is registered by the same write: see `membership`.
"""

import logging
from collections.abc import Callable
from functools import partial

from moldau.cluster import queries, znodes
from moldau.cluster.changes import Register
from moldau.cluster.snapshot import BrokerInfo
from moldau.cluster.store import MetadataStore, StoreEvent, WriteResult
from moldau.cluster.znodes import BrokerNode
from moldau.model.errors import CoordinationError
from moldau.ports.clock import Clock
from moldau.ports.coordination import NodeExistsError, SessionEvent, SessionState

_LOG = logging.getLogger(__name__)

TAKEN_MAX_S = 30.0
"""How long a registration by another session is waited for: that of this broker's last process ends with its session."""
AGAIN_S = 1.0
PREVIOUS_MAX = 100
"""Earlier registrations that one names: sessions that may end one after the other before a controller takes account of a broker."""


def registration_of(info: BrokerInfo, clock: Clock, previous_epochs: tuple[int, ...] = ()) -> Register:
    """The change that registers a broker."""
    return Register(info.broker_id, BrokerNode(info.endpoints, info.rack, clock.time_ms(), previous_epochs))


class Registration:
    """See the module."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        info: BrokerInfo,
        *,
        registered: Callable[[tuple[int, ...], int], object],
        failed: Callable[[CoordinationError], object],
        made: tuple[int, int] | None = None,
        clean_epochs: tuple[int, ...] = (),
    ) -> None:
        """`registered` is called, perhaps at once, with the incarnations since which this broker has lost nothing, its own last, and
        the session's id; `failed` with what keeps it from that: at its start it is not registered then, later it tries again. `made`:
        incarnation and session of a registration that was made before. `clean_epochs`: the incarnations since which nothing was lost when
        the logs were opened.
        """
        self._store = store
        self._clock = clock
        self._info = info
        self._registered = registered
        self._failed = failed
        self._made = made
        self._epochs = clean_epochs
        """Registrations since which this broker has lost nothing."""
        self._session_id = 0
        """The session in which this broker is registered, or registers."""
        self._taken_since_s: float | None = None
        self._is_first = True
        """Whether it has not been registered yet."""
        self._has_ended = False
        store.listen(self._heard)

    def end(self) -> None:
        """Register no more."""
        self._has_ended = True
        self._session_id = 0

    def _heard(self, event: StoreEvent | SessionEvent) -> None:
        if self._has_ended:
            return
        if isinstance(event, SessionEvent) and event.state is SessionState.CONNECTED and event.session_id != self._session_id:
            self._session_id = event.session_id
            self._taken_since_s = None
            if self._made is not None and self._made[1] == event.session_id:
                self._end(*self._made)
            else:
                self._write(event.session_id)

    def _write(self, session_id: int) -> None:
        if session_id == self._session_id:
            self._store.write([registration_of(self._info, self._clock, self._epochs)], partial(self._written, session_id))

    def _written(self, session_id: int, outcome: WriteResult | CoordinationError) -> None:
        if session_id != self._session_id:
            return
        if isinstance(outcome, WriteResult):
            assert outcome.created_id is not None, "a node that was made has an id"
            self._end(outcome.created_id, session_id)
        elif isinstance(outcome, NodeExistsError):
            queries.answer(self._store, queries.registration(self._info.broker_id), partial(self._taken, session_id))
        elif session_id == self._store.session_id:
            self._failed(outcome)
            if not self._is_first:
                self._clock.call_later(AGAIN_S, partial(self._write, session_id))

    def _end(self, broker_epoch: int, session_id: int) -> None:
        self._epochs = (*self._epochs, broker_epoch)[-PREVIOUS_MAX:]
        self._is_first = False
        self._registered(self._epochs, session_id)

    def _taken(self, session_id: int, found: tuple[int, int] | CoordinationError | None) -> None:
        """There is a registration: this session's, or another's, which may end soon."""
        if isinstance(found, CoordinationError):
            self._written(session_id, found)
            return
        if found is not None and found[1] == session_id:
            self._end(found[0], session_id)
            return
        now = self._clock.monotonic()
        path = znodes.broker(self._info.broker_id)
        if self._taken_since_s is None:
            self._taken_since_s = now
            if found is not None:
                _LOG.warning(
                    "broker id is registered by another session: path=%s session=%d; waiting up to %.0f s until that has ended",
                    path,
                    found[1],
                    TAKEN_MAX_S,
                )
        if found is not None and now - self._taken_since_s >= TAKEN_MAX_S:
            reason = "a live broker has registered there; give each broker of a cluster a broker.id of its own"
            self._failed(CoordinationError(f"{path}: {reason}", retriable=False))
        else:
            self._clock.call_later(AGAIN_S, partial(self._write, session_id))
