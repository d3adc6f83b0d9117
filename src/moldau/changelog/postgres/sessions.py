"""Connections to a server: for SQL, with a session whose text format is known, and what psycopg raises in our words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from moldau.changelog.postgres.errors import RefusedError, UnreachableServerError
from moldau.changelog.postgres.text_values import SESSION_OPTIONS
from moldau.model.extras import require

if TYPE_CHECKING:
    from psycopg import Connection, Error

CONNECT_TIMEOUT_S: Final = 10
_TIMEOUTS: Final[Mapping[str, str]] = {"idle_in_transaction_session_timeout": "0", "statement_timeout": "0"}
"""Settings of the server that would end a long reading."""
_REPLICATION: Final[Mapping[str, str]] = {"wal_sender_timeout": "30min"}
"""A table's topic may be read, or a table, for longer than the minute after which a server takes its client for dead. A source that starts
ends the connection of the one before.
"""
_PASSING_CLASSES: Final = ("08", "40", "53", "57")
"""Of SQLSTATE: connection exceptions, rolled back in favour of others, lacking resources, an operator's intervention such as a shutdown."""
_PASSING: Final = ("55006", "55P03")
"""The slot is in use, a lock was not had in time."""


class Server:
    """Where a database is. `conninfo` is a connection string of libpq; MissingExtraError without psycopg, RefusedError for another text."""

    def __init__(self, conninfo: str) -> None:
        require("changelog", "a changelog of PostgreSQL")
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            self._parameters: dict[str, Any] = dict(conninfo_to_dict(conninfo))
        except ProgrammingError as error:
            raise RefusedError(f"not a connection string of PostgreSQL: {error}") from error
        found = self._parameters
        self.name = f"PostgreSQL {found.get('host', 'localhost')}:{found.get('port', 5432)}/{found.get('dbname', '')}"
        """For messages: without user and password."""

    def connect(self, application: str, *, replication: bool = False) -> "Connection[tuple[Any, ...]]":
        """A connection with autocommit, for SQL or with the commands of replication. UnreachableServerError."""
        from psycopg import Connection, OperationalError

        settings = {**SESSION_OPTIONS, **_TIMEOUTS, **(_REPLICATION if replication else {})}
        options = [str(self._parameters.get("options", "")), *(f"-c {name}={value}" for name, value in settings.items())]
        parameters: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S} | self._parameters
        parameters |= {"application_name": application, "client_encoding": "UTF8", "options": " ".join(options).strip()}
        if replication:
            parameters["replication"] = "database"
        try:
            return Connection.connect("", autocommit=True, **parameters)
        except OperationalError as error:
            raise UnreachableServerError(self.name, one_line(error)) from error

    @contextmanager
    def translated(self, what: str = "") -> Iterator[None]:
        """What psycopg raises inside: UnreachableServerError if it may pass by itself, RefusedError if not; with `what` was tried."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self.translation(error, what) from error

    def translation(self, error: "Error", what: str = "") -> UnreachableServerError | RefusedError:
        """See `translated`."""
        reason = f"{what}: {one_line(error)}" if what else one_line(error)
        return UnreachableServerError(self.name, reason) if _may_pass(error) else RefusedError(f"{self.name}: {reason}")


def _may_pass(error: "Error") -> bool:
    from psycopg import InterfaceError, OperationalError

    if error.sqlstate is None:
        return isinstance(error, OperationalError | InterfaceError)
    return state_may_pass(error.sqlstate)


def state_may_pass(sqlstate: str) -> bool:
    """Whether an error with this code may pass by itself."""
    return sqlstate.startswith(_PASSING_CLASSES) or sqlstate in _PASSING


def one_line(error: "Error") -> str:
    """What the server or psycopg says, with its details."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip()) or type(error).__name__
