"""The coordination tree in ZooKeeper, over kazoo.

kazoo has a thread for its connection. Everything it finds there (answers, watches, states) goes through one queue to the loop's thread,
where all of this runs: see `zookeeper_handler`. Nothing here waits for ZooKeeper.

At most `in_flight_max` requests are with kazoo; the others wait here, also while there is no connection. A kazoo client is used for one
session. When that has expired, the next session gets a client of its own, so that no request of the old session can be sent in the new one:
the old client's handler refuses to connect.

ZooKeeper's ids of sessions are unique, but not ordered: the highest byte is the number of the server that made it.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo import exceptions as errors
from kazoo.client import KazooClient, KazooState
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import KeeperState, WatchedEvent

from moldau.adapters.zookeeper_end import end_session
from moldau.adapters.zookeeper_handler import LoopAnswer, LoopHandler
from moldau.adapters.zookeeper_requests import OPEN, REQUEST_BYTES_MAX, Acl, bytes_of, outcome_of, submit
from moldau.model.errors import CoordinationError
from moldau.model.zookeeper_connect import ConnectString
from moldau.ports.coordination import (
    REQUESTS_MAX,
    ConnectionLostError,
    Done,
    EventType,
    Listener,
    Outcome,
    Request,
    SessionClosedError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    Stream,
    TooManyRequestsError,
    Watches,
    check_paths,
    nothing,
    parent_of,
)

_LOG = logging.getLogger(__name__)
_KAZOO_LOG = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)  # it warns at each attempt to connect

IN_FLIGHT_MAX = 10
CLOSE_LIMIT_S = 2.0
"""How long a close waits for ZooKeeper's answer. The session of a server that does not answer expires there."""
CLIENT_AGAIN_S = 1.0
RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}

_OF_CONNECTION = (errors.ConnectionLoss, errors.SessionExpiredError, errors.ConnectionClosedError, errors.AuthFailedError)
_EVENTS = {
    KazooEvent.CREATED: EventType.CREATED,
    KazooEvent.CHANGED: EventType.CHANGED,
    KazooEvent.DELETED: EventType.DELETED,
    KazooEvent.CHILD: EventType.CHILDREN,
}


def open_acl(_: str) -> Acl:
    """Everyone may do everything with a node."""
    return OPEN


class _Request:
    """A request that kazoo has."""

    __slots__ = ("done", "is_done", "outcome", "request")

    def __init__(self, request: Request, done: Done) -> None:
        self.request = request
        self.done = done
        self.outcome: Outcome = None
        self.is_done = False


class ZookeeperCoordination:
    """One session after another with an ensemble."""

    def __init__(
        self,
        connect: ConnectString,
        loop: asyncio.AbstractEventLoop,
        *,
        session_timeout_ms: int,
        in_flight_max: int = IN_FLIGHT_MAX,
        digest: str | None = None,
        acl_of: Callable[[str], Acl] = open_acl,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        """Begin to connect. `digest` is ``user:password``; `acl_of` gives the access list of a new node by its path."""
        self.session_id = 0
        """See the port."""
        self._connect = connect
        self._root = connect.chroot
        self._loop = loop
        self._session_timeout_s = session_timeout_ms / 1000
        self._granted_ms: int | None = None
        """See `SessionEvent`."""
        self._in_flight_max = in_flight_max
        self._auth = [] if digest is None else [("digest", digest)]
        self._acl_of = acl_of
        self._requests_max = requests_max
        self._stream = Stream()
        self._watches = Watches()
        self._waiting: deque[tuple[Request, Done]] = deque()
        """What kazoo has not got yet."""
        self._sent: deque[_Request] = deque()
        self._is_connected = False
        self._is_root_made = not connect.chroot
        self._closing: Callable[[], object] | None = None
        self._is_ending = False
        self._is_closed = False
        self._client: KazooClient
        self._handler: LoopHandler
        self._watch: Callable[[WatchedEvent], object]
        self._start_client(None)

    # The port

    def submit(self, request: Request, done: Done) -> None:
        """Have a request carried out; see the port."""
        check_paths(request)
        if self._closing is not None:
            self._stream.answer(done, SessionClosedError())
        elif len(self._waiting) + len(self._sent) >= self._requests_max:
            self._stream.answer(done, TooManyRequestsError(self._requests_max))
        elif self._is_connected and not self._waiting and len(self._sent) < self._in_flight_max:
            self._send(request, done)
        else:
            self._waiting.append((request, done))

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with events; see the port."""
        self._stream.listen(listener)
        if self._is_connected:
            self._stream.put(partial(listener, SessionEvent(SessionState.CONNECTED, self.session_id, self._granted_ms)))

    def close(self, done: Callable[[], object] = nothing) -> None:
        """End the session; see the port. Without a connection, or an answer in time, ZooKeeper ends it when it expires."""
        if self._closing is not None:
            self._stream.put(done)
            return
        self._closing = done
        if self._is_connected:
            self._loop.call_later(CLOSE_LIMIT_S, self._closed)
            self._end_if_idle()
        else:
            self._refuse_waiting()
            self._end()

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing is not None

    @property
    def credentials(self) -> tuple[int, bytes]:
        """Id and password of the session: who has them can continue it, and end it. While it is connected."""
        session: tuple[int, bytes] = self._client.client_id
        return session

    def end_other(self, session: tuple[int, bytes], done: Callable[[], object]) -> None:
        """End a session that another process has left; `done` when that was tried."""
        handler, hosts, timeout_s = self._handler, self._connect.hosts, self._session_timeout_s

        def end() -> None:
            try:
                end_session(hosts, session, timeout_s)
            finally:
                handler.post(done)

        self._in_thread(end)

    @property
    def failure(self) -> str | None:
        """Why the last attempt to connect failed; None after one that did not."""
        return self._handler.failure

    # The session's states

    def _start_client(self, session: tuple[int, bytes] | None) -> None:
        """Connect with a new client: in a new session, or in one that a client before had."""
        self._handler = LoopHandler(self._loop)
        client = self._client = KazooClient(
            hosts=self._connect.hosts,
            timeout=self._session_timeout_s,
            client_id=session,
            handler=self._handler,
            auth_data=self._auth,
            randomize_hosts=True,
            connection_retry=RETRY,
            logger=_KAZOO_LOG,
        )
        client._connection._invoke = partial(_granting, client._connection._invoke, self._handler)
        client.add_listener(partial(self._state_changed, client, self._handler))
        self._watch = partial(self._watched, client)
        client.start_async()

    def _state_changed(self, client: KazooClient, handler: LoopHandler, state: str) -> None:
        """On kazoo's thread, which does not connect before this returns."""
        if state == KazooState.CONNECTED:
            handler.post(partial(self._connected, client, client.client_id, handler.granted_ms))
        elif state == KazooState.SUSPENDED:
            handler.post(partial(self._suspended, client))
        else:
            handler.is_over = True
            handler.post(partial(self._lost, client, client.client_state, (client._session_id, client._session_passwd)))

    def _connected(self, client: KazooClient, session: tuple[int, bytes], granted_ms: int) -> None:
        if client is not self._client or self._closing is not None:
            return
        if self.session_id not in (0, session[0]):  # a client that should continue a session got another
            self._expire()
        self.session_id = session[0]
        self._granted_ms = None if granted_ms == int(self._session_timeout_s * 1000) else granted_ms
        text = "connected to ZooKeeper: servers=%s session=%#x session_timeout_ms=%d"
        _LOG.info(text, self._connect, self.session_id & (1 << 64) - 1, granted_ms)
        if not self._is_root_made:
            self._make_root(client)
        self._stream.fire([SessionEvent(SessionState.CONNECTED, self.session_id, self._granted_ms)])
        self._is_connected = self._closing is None
        self._send_waiting()

    def _suspended(self, client: KazooClient) -> None:
        if client is not self._client or not self._is_connected:
            return
        self._is_connected = False
        self._watches.clear()
        lost, self._sent = self._sent, deque()
        _LOG.warning("connection to ZooKeeper lost, connecting again: servers=%s requests=%d", self._connect, len(lost))
        self._stream.fire([SessionEvent(SessionState.SUSPENDED, self.session_id)])
        for each in lost:
            each.is_done = True
            self._stream.answer(each.done, ConnectionLostError())
        if self._closing is not None:
            self._refuse_waiting()
            self._end()

    def _lost(self, client: KazooClient, state: str, session: tuple[int, bytes]) -> None:
        """The client has ended: since its session has expired, or through an error of it, after which another continues the session."""
        if client is not self._client or self._is_ending:
            return
        self._suspended(client)
        if self._is_ending:
            return
        self._in_thread(_stop, client)
        if state == KeeperState.EXPIRED_SESSION:
            self._expire()
            if self._closing is None:
                self._start_client(None)
        else:
            _LOG.error("client of ZooKeeper ended, starting another: servers=%s state=%s", self._connect, state)
            if state == KeeperState.AUTH_FAILED:
                self._handler.failure = "authentication failed (zookeeper.digest.file)"
            self._loop.call_later(CLIENT_AGAIN_S, self._continue, session if self.session_id else None)

    def _continue(self, session: tuple[int, bytes] | None) -> None:
        if self._closing is None:
            self._start_client(session)

    def _expire(self) -> None:
        ended, self.session_id = self.session_id, 0
        waiting, self._waiting = self._waiting, deque()
        _LOG.warning("session with ZooKeeper expired, beginning another: servers=%s session=%#x", self._connect, ended & (1 << 64) - 1)
        self._stream.fire([SessionEvent(SessionState.EXPIRED, ended)])
        for _, done in waiting:
            self._stream.answer(done, SessionExpiredError())

    # Requests

    def _send_waiting(self) -> None:
        while self._waiting and self._is_connected and len(self._sent) < self._in_flight_max:
            self._send(*self._waiting.popleft())

    def _send(self, request: Request, done: Done) -> None:
        sent = _Request(request, done)
        self._sent.append(sent)
        if bytes_of(request) > REQUEST_BYTES_MAX:
            self._refuse(sent, CoordinationError(f"a request of more than {REQUEST_BYTES_MAX} bytes", retriable=False))
            return
        try:
            result = submit(self._client, request, self._root, self._acl_of, self._watch)
        except ValueError as error:
            self._refuse(sent, CoordinationError(f"{request}: {error}", retriable=False))
        else:
            result.rawlink(partial(self._answered, sent))

    def _refuse(self, sent: _Request, error: CoordinationError) -> None:
        """Answer in its turn a request that was not sent."""
        sent.outcome, sent.is_done = error, True
        self._loop.call_soon(self._deliver)

    def _answered(self, sent: _Request, answer: LoopAnswer) -> None:
        """Errors of the connection are left to `_suspended`, which follows: events of the session come first."""
        if not sent.is_done and not isinstance(answer.exception, _OF_CONNECTION):
            sent.outcome, sent.is_done = outcome_of(sent.request, answer, self._root), True
            self._deliver()

    def _deliver(self) -> None:
        while self._sent and self._sent[0].is_done:
            first = self._sent.popleft()
            self._watches.note(first.request, first.outcome)
            self._stream.answer(first.done, first.outcome)
        self._send_waiting()
        self._end_if_idle()

    def _watched(self, client: KazooClient, event: WatchedEvent) -> None:
        kind = _EVENTS.get(event.type)
        if kind is not None and client is self._client:
            path = event.path.removeprefix(self._root) or "/"
            if events := self._watches.take([(kind, path)]):
                self._stream.fire(events)

    def _make_root(self, client: KazooClient) -> None:
        """Before all that waits, in the same order at the server."""
        paths = [self._root]
        while (parent := parent_of(paths[-1])) != "/":
            paths.append(parent)
        for path in reversed(paths):
            client.create_async(path, acl=list(self._acl_of("/"))).rawlink(partial(self._root_made, path))

    def _root_made(self, path: str, answer: LoopAnswer) -> None:
        error = answer.exception
        if error is None or isinstance(error, errors.NodeExistsError):
            self._is_root_made = path == self._root
        elif not isinstance(error, _OF_CONNECTION):
            _LOG.error("node of zookeeper.connect not created: path=%s reason=%s", path, str(error) or type(error).__name__)

    # The end

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            self._stream.answer(done, SessionClosedError())

    def _end_if_idle(self) -> None:
        if self._closing is not None and self._is_connected and not self._sent and not self._waiting:
            self._end()

    def _end(self) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        self._is_connected = False
        self._loop.call_later(CLOSE_LIMIT_S, self._closed)
        self._in_thread(_stop, self._client, partial(self._handler.post, self._closed))

    def _closed(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._handler.is_over = True
        ended, self.session_id = self.session_id, 0
        self._is_connected = False
        self._watches.clear()
        lost, self._sent = self._sent, deque()
        for each in lost:
            each.is_done = True
            self._stream.answer(each.done, ConnectionLostError())
        self._refuse_waiting()
        self._stream.fire([SessionEvent(SessionState.CLOSED, ended)])
        self._stream.put(self._closing or nothing)
        if not self._is_ending:
            self._is_ending = True
            self._in_thread(_stop, self._client)

    @staticmethod
    def _in_thread(call: Callable[..., object], *arguments: object) -> None:
        threading.Thread(target=call, args=arguments, name="moldau-zookeeper-end", daemon=True).start()


def _granting(invoke: Callable[..., Any], handler: LoopHandler, timeout_s: float, request: Any, xid: int | None = None) -> Any:
    """Kazoo's own call while it connects, of whose answers it does not keep the session timeout that the server grants."""
    answer = invoke(timeout_s, request, xid=xid)
    if isinstance(request, Connect):
        handler.granted_ms = answer[0].time_out
    return answer


def _stop(client: KazooClient, then: Callable[[], object] = nothing) -> None:
    """Ends the client's session if it is connected, and its thread. Waits for both, so this has a thread of its own."""
    try:
        client.stop()
        client.close()
    except Exception as error:
        _LOG.warning("client of ZooKeeper not closed in order: reason=%s", str(error) or type(error).__name__)
    finally:
        then()
