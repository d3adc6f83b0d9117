"""HTTP over uvicorn, with the bounds that it has not: of time for requests to arrive and answers to be taken, of connections at once.

uvicorn closes connections that are idle after an answer, and bounds requests at once. A client that sends a byte now and then, or never
reads, would keep its place for ever; connections beyond the bound would each keep a socket.
"""

import asyncio
import logging
import socket
import threading
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from moldau.registry.limits import HttpLimits

log = logging.getLogger(__name__)
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # lines about starting, stopping and bad requests: ours, or none

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """A connection."""

    def __init__(self, *arguments: Any, limits: HttpLimits, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._limits = limits
        self._arriving: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, unless there are as many as may be."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections_max:
            self.connections.discard(self)
            transport.write(_TOO_MANY)
            transport.close()
            return
        self._arriving = self.loop.call_later(self._limits.request_s, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._forget()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; the clock runs from the first to the last."""
        if self._unread() > self._limits.all_unread_bytes_max:
            self.transport.write(_TOO_MANY if self.conn.our_state is h11.IDLE else b"")
            self.transport.close()
            self._cut_later()
            return
        super().data_received(data)
        if self._is_answering() or self._is_idle():
            self._forget()
        elif self._arriving is None:
            self._arriving = self.loop.call_later(self._limits.request_s, self._too_slow)

    def timeout_keep_alive_handler(self) -> None:
        """Close what is idle; what does not take its answer is cut a while later."""
        super().timeout_keep_alive_handler()
        self._cut_later()

    def pause_writing(self) -> None:
        """The client does not read its answer: it has `unread_s` to start."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self._limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It does."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        super().resume_writing()

    def _unread(self) -> int:
        """Bytes of answers that clients have not taken."""
        return sum(each.transport.get_write_buffer_size() for each in self.connections)

    def _is_answering(self) -> bool:
        """A request is here whole, and its answer is not out."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _is_idle(self) -> bool:
        """The last request is answered, and nothing of another is here."""
        return self.cycle is not None and self.cycle.response_complete and not self.conn.trailing_data[0]

    def _cut_later(self) -> None:
        """A connection that is closed stays until its client has taken what is left, but not for ever."""
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self._limits.unread_s, self.transport.abort)

    def _forget(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        self._arriving = None
        if not self.transport.is_closing():
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no part of an answer is out
                self.transport.write(_TOO_SLOW)
            self.transport.close()


class HttpServer(uvicorn.Server):
    """Serves an ASGI application; `listening` is set when it does."""

    def __init__(self, app: Any, limits: HttpLimits, grace_s: int) -> None:
        super().__init__(
            uvicorn.Config(
                app, loop="asyncio", http=partial(BoundedProtocol, limits=limits), ws="none", lifespan="off", interface="asgi3",  # type: ignore[arg-type]
                log_config=None, access_log=False, proxy_headers=False, server_header=False, timeout_graceful_shutdown=grace_s,
                timeout_keep_alive=int(limits.idle_s), h11_max_incomplete_event_size=limits.head_bytes_max,
            )
        )  # fmt: skip
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        try:
            await super().startup(sockets)
        finally:
            self.listening.set()
