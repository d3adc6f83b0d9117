"""Hands a request that only the writer can carry out to the writer, over HTTP, and its answer back as it came."""

import http.client
from typing import TYPE_CHECKING, NamedTuple

from moldau.registry.rest_connection import CONTENT_TYPE, parse_urls

if TYPE_CHECKING:
    from moldau.registry.election import Identity
    from moldau.registry.request import Request

FORWARDED = "X-Forward"
"""Says that a request was handed on: whoever gets it must not hand it on again."""


class ForwardError(Exception):
    """The writer gave no answer; `delivered` says that it may have carried the request out."""

    def __init__(self, message: str, *, delivered: bool) -> None:
        super().__init__(message)
        self.delivered = delivered


class Forwarded(NamedTuple):
    """The writer's answer."""

    status: int
    content: bytes


def forward(writer: "Identity", request: "Request", timeout_s: float) -> Forwarded:
    """Ask the writer. ForwardError."""
    target = parse_urls(writer.url)[0]
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    connection = kind(target.host, target.port, timeout=timeout_s)
    headers = {"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE, FORWARDED: "true"}
    delivered = False
    try:
        connection.connect()
        delivered = True
        connection.request(request.method, request.target, request.content, headers)
        response = connection.getresponse()
        return Forwarded(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise ForwardError(f"{writer.url}: {error or type(error).__name__}", delivered=delivered) from error
    finally:
        connection.close()
