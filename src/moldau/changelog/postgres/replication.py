"""The streaming replication protocol: a slot is made, and its messages are received while the server learns what is safe in the log.

psycopg starts the stream and hands out what COPY sends, by its documented layer over libpq (`psycopg.pq`); the messages inside are read and
written here. Facts: PostgreSQL's documentation, "Streaming Replication Protocol".
"""

import selectors
import time
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from moldau.changelog.postgres.errors import RefusedError, StreamError, UnreachableServerError
from moldau.changelog.postgres.lsn import lsn_of, lsn_text
from moldau.changelog.postgres.pgoutput import POSTGRES_EPOCH_US
from moldau.changelog.postgres.sessions import state_may_pass

if TYPE_CHECKING:
    from psycopg import Connection

    from moldau.changelog.postgres.sessions import Server

STATUS_S: Final = 10.0
"""The server is sent how far the log is at least so often; it keeps its log until then."""
_FOUND_AT_START: Final = ("42704", "55000", "58P01")
"""Errors after which a new start says what is wrong with the slot or the publication: an undefined object (a publication), a state that an
object should have (an invalidated slot), an undefined file (a removed part of the log).
"""
_DATA: Final = Struct(">cqqq")
_KEEPALIVE: Final = Struct(">cqqB")
_STATUS: Final = Struct(">cqqqqB")


class Exported(NamedTuple):
    """What a new slot begins with."""

    lsn: int
    """Changes that are committed after it will come."""
    snapshot: str
    """Its name: what was committed before. It is there until the connection ends."""


class Received(NamedTuple):
    """From the stream."""

    wal_end: int
    """All before has been sent, as far as it is committed."""
    data: bytes | None
    """A message of pgoutput; None: the server only says how far it is."""
    wants_reply: bool = False
    """The server asks how far the client is: a server that shuts down waits until all that it has sent is confirmed."""


class ReplicationConnection:
    """One connection in replication mode, used by one thread. UnreachableServerError, RefusedError."""

    def __init__(self, server: "Server", application: str) -> None:
        from psycopg import Error

        self._server = server
        self._errors = Error
        self._connection: Connection[tuple[Any, ...]] = server.connect(application, replication=True)
        self._copy_data = self._connection.pgconn.get_copy_data
        self._selector = selectors.DefaultSelector()
        self._received = 0
        self._flushed = 0
        self._status_at = 0.0

    def create_slot(self, slot: str) -> Exported:
        """Make a slot; waits until the transactions that are open now have ended. The snapshot lasts until the next call or `close`."""
        with self._server.translated(f"replication slot {slot} was not made"):
            row = self._connection.execute(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput EXPORT_SNAPSHOT').fetchone()
        assert row is not None
        return Exported(lsn_of(row[1]), row[2])

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Have the server send what is committed after `lsn`; what is before is safe in the log."""
        with self._server.translated(f"replication slot {slot} was not started"):
            self._connection.execute(
                f"START_REPLICATION SLOT \"{slot}\" LOGICAL {lsn_text(lsn)} (proto_version '1', publication_names '\"{publication}\"')"
            )
            self._selector.register(self._connection.pgconn.socket, selectors.EVENT_READ)
        self._received = self._flushed = lsn
        self._send_status()

    def receive(self, timeout_s: float) -> Received | None:
        """What comes next; None if nothing has come in this time. With 0 only what is here already."""
        if time.monotonic() - self._status_at > STATUS_S:
            self._send_status()
        data = self._next()
        if data is None and (timeout_s == 0 or self._selector.select(timeout_s)):
            with self._server.translated():
                self._connection.pgconn.consume_input()
            data = self._next()
        return None if data is None else self._read(data)

    def confirm(self, lsn: int) -> None:
        """The log has all that was committed up to there: the server need not keep it."""
        self._flushed = lsn
        self._send_status()

    def close(self) -> None:
        """End the connection; the slot stays."""
        self._selector.close()
        self._connection.close()

    def _next(self) -> bytes | None:
        try:
            size, data = self._copy_data(1)
        except self._errors as error:
            raise self._server.translation(error) from error
        if size < 0:
            self._raise_ended()
        return bytes(data) if size else None

    def _raise_ended(self) -> NoReturn:
        from psycopg.pq import DiagnosticField

        with self._server.translated():
            result = self._connection.pgconn.get_result()
        reason, state = "the server has ended the stream", None
        if result is not None and (found := result.error_message.decode(errors="replace").strip()):
            reason, state = "; ".join(line.strip() for line in found.splitlines()), result.error_field(DiagnosticField.SQLSTATE)
        if state is None or state_may_pass(state.decode()) or state.decode() in _FOUND_AT_START:
            raise UnreachableServerError(self._server.name, reason)
        raise RefusedError(f"{self._server.name}: the server has ended the stream: {reason}")

    def _read(self, data: bytes) -> Received:
        match data[:1]:
            case b"w":
                self._received = max(self._received, int.from_bytes(data[1:9]))
                return Received(self._received, data[_DATA.size :])
            case b"k":
                _, end, _, wants_status = _KEEPALIVE.unpack_from(data)
                self._received = max(self._received, end)
                if wants_status:
                    self._send_status()
                return Received(end, None, bool(wants_status))
            case kind:
                raise StreamError(f"{self._server.name}: unknown message {kind!r} in the stream")

    def _send_status(self) -> None:
        now_us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        with self._server.translated():
            self._connection.pgconn.put_copy_data(_STATUS.pack(b"r", self._received, self._flushed, self._flushed, now_us, 0))
            self._connection.pgconn.flush()
        self._status_at = time.monotonic()
