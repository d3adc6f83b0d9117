"""How a stream ends: by an error that a new start may mend or name, or by one that comes again (mission I5)."""

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.changelog.postgres.errors import RefusedError, UnreachableServerError
from moldau.changelog.postgres.replication import ReplicationConnection
from moldau.changelog.postgres.sessions import Server


class EndingServer(Server):
    """Ends each stream with one error."""

    def __init__(self, state: bytes | None, message: bytes) -> None:
        super().__init__("host=db dbname=shop")
        self._result = SimpleNamespace(error_message=message, error_field=lambda _: state)

    def connect(self, application: str, *, replication: bool = False) -> Any:
        found = {"get_copy_data": lambda _: (-1, b""), "get_result": lambda: self._result, "put_copy_data": len, "flush": int}
        return SimpleNamespace(pgconn=SimpleNamespace(**found))


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (None, UnreachableServerError),
        (b"57P01", UnreachableServerError),
        (b"42704", UnreachableServerError),
        (b"55000", UnreachableServerError),
        (b"58P01", UnreachableServerError),
        (b"22012", RefusedError),
        (b"XX001", RefusedError),
    ],
)
def test_an_error_that_ends_a_stream_is_tried_again_or_not(state: bytes | None, error: type[Exception]) -> None:
    connection = ReplicationConnection(EndingServer(state, b"ERROR:  it ends\nDETAIL:  so\n"), "moldau_shop")
    with pytest.raises(error, match=r"PostgreSQL db:5432/shop: .*ERROR:  it ends; DETAIL:  so$"):
        connection.receive(0)


def test_a_stream_that_ends_without_an_error_is_tried_again() -> None:
    connection = ReplicationConnection(EndingServer(None, b""), "moldau_shop")
    with pytest.raises(UnreachableServerError, match="the server has ended the stream"):
        connection.receive(0)
