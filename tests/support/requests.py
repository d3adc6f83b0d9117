"""Requests without a connection, for handlers that are called by a test."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.request import Request
from moldau.broker.security import Channel
from moldau.cluster.snapshot import Endpoint
from moldau.model.steps import Steps
from moldau.ports.transport import Part

if TYPE_CHECKING:
    from moldau.broker.request import DelayedOperation, FastPath, RequestSource


class NotedExchange:
    """The connection's side of a request: notes what the handler asks of it. Only what the handler itself calls does something."""

    def __init__(self) -> None:
        self.replies: list[Sequence[Part]] = []
        self.held = 0
        self.aborted = False

    @property
    def holder(self) -> "RequestSource":
        raise NotImplementedError

    def take_place(self, waiting_cost: int) -> None:
        raise NotImplementedError

    def withdraw(self) -> None:
        raise NotImplementedError

    def reply(self, parts: Sequence[Part]) -> None:
        self.replies.append(parts)

    def delay(self, operation: "DelayedOperation") -> None:
        raise NotImplementedError

    def hold(self, abandoned: Callable[[], object] | None = None) -> None:
        self.held += 1

    def resume(self, work: Callable[[], object]) -> None:
        raise NotImplementedError

    def run(self, steps: Steps, *, droppable: bool = True) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        self.aborted = True

    def cut(self, reason: object) -> None:
        raise NotImplementedError

    def remember(self, fast: "FastPath | None") -> None:
        raise NotImplementedError


ADVERTISED = Endpoint("PLAINTEXT", "192.0.2.2", 9092)


def plain_request(
    api_key: int,
    version: int,
    *,
    client_id: str | None = "test",
    peer: tuple[str, int] = ("127.0.0.1", 1),
    advertised: Endpoint = ADVERTISED,
) -> Request:
    """Of a request by a client at `peer`."""
    channel = Channel(advertised.listener, peer, advertised)
    request = Request(channel, NotedExchange(), api_key, version, 1, 0, 0.0)
    request.client_id = client_id
    return request
