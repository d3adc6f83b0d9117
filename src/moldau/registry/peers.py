"""Requests from one registry to another: a change is forwarded to the writer, and the writer that a group elected is confirmed.

Any Kafka client may join the group of the registries as a registry and be elected. So a registry that forwards a request first sends the
elected one a new nonce, and reads the topic until there is a record like this:

    {"keytype":"NOOP","magic":0}    {"writer":"http://registry-1:8081","confirms":"9f1c..."}

Only a registry that fenced the others writes one, with its own address, and only when it receives a nonce. So an earlier answer cannot
be replayed, nor one of another registry. It holds until the topic has another NOOP: another registry took over.
"""

import http.client
import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from moldau.registry.body import object_of
from moldau.registry.errors import unprocessable
from moldau.registry.records import NoopKey, Write, encode_key, to_json
from moldau.registry.request import RestRequest
from moldau.registry.rest_connection import CONTENT_TYPE, parse_urls
from moldau.registry.schemas_topic import TopicReadError

if TYPE_CHECKING:
    from moldau.registry.election import RegistryIdentity
    from moldau.registry.schemas_topic import Follower
    from moldau.registry.state import RegistryState

FORWARDED = "X-Forward"
"""The header of a forwarded request: its receiver must not forward it again."""


class ForwardError(Exception):
    """The writer did not answer; with `delivered` it may have carried the request out."""

    def __init__(self, message: str, *, delivered: bool) -> None:
        super().__init__(message)
        self.delivered = delivered


class ForwardedAnswer(NamedTuple):
    """The writer's answer."""

    status: int
    content: bytes


def forward(writer: "RegistryIdentity", request: "RestRequest", timeout_s: float) -> ForwardedAnswer:
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
        return ForwardedAnswer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise ForwardError(f"{writer.url}: {error or type(error).__name__}", delivered=delivered) from error
    finally:
        connection.close()


PATH = "/v1/writer/confirmations"
"""Where an elected registry takes a nonce."""
ASK_AGAIN_S = 10.0
"""How often a registry that writes in its place asks the elected one again."""
_TIMEOUT_S = 2.0
_NONCE_CHARACTERS = range(16, 129)


def confirmation(url: str, request: RestRequest) -> "Write":
    """The record by which the writer at `url` answers a nonce. RestError 422."""
    nonce = object_of(request.json(), "the body").get("nonce")
    if not isinstance(nonce, str) or len(nonce) not in _NONCE_CHARACTERS or not nonce.isalnum():
        raise unprocessable("nonce is not a text of 16 to 128 letters and digits")
    return encode_key(NoopKey()), to_json({"writer": url, "confirms": nonce})


class WriterConfirmation:
    """Whether the elected writer is one. Any thread may ask."""

    def __init__(
        self, state: "RegistryState", follower: "Follower", trusted: frozenset[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Writers with a URL in `trusted` count as they are: registries of another make."""
        self._state = state
        self._follower = follower
        self._trusted = trusted
        self._clock = clock
        self._lock = threading.Lock()
        self._confirmed = ""
        self._doubted_since: float | None = None
        self._asked_at = -ASK_AGAIN_S

    @property
    def is_due(self) -> bool:
        """Whether an elected writer that was not confirmed is to be asked again."""
        return self._clock() - self._asked_at >= ASK_AGAIN_S

    @property
    def doubted_s(self) -> float:
        """For how long requests have found no confirmed writer; 0 if the last one did."""
        since = self._doubted_since
        return 0.0 if since is None else self._clock() - since

    def doubt(self) -> None:
        """No writer is confirmed."""
        self._doubted_since = self._clock() if self._doubted_since is None else self._doubted_since

    def believe(self) -> None:
        """A writer is confirmed."""
        self._doubted_since = None

    def ask(self, writer: "RegistryIdentity", timeout_s: float) -> bool:
        """Whether the elected writer is confirmed; it is asked now unless it was before."""
        if writer.url in self._trusted:
            return True
        with self._lock:
            if writer.url == self._confirmed == self._state.noop_writer:
                return True
            self._confirmed = ""
            self._asked_at = self._clock()
            if self._answers(writer, min(timeout_s, _TIMEOUT_S)):
                self._confirmed = writer.url
                self.believe()
                return True
        self.doubt()
        return False

    def _answers(self, writer: "RegistryIdentity", timeout_s: float) -> bool:
        nonce = secrets.token_hex(16)
        request = RestRequest("POST", PATH, {}, {}, json.dumps({"nonce": nonce}).encode(), forwarded=True)
        try:
            if forward(writer, request, timeout_s).status != 200:
                return False
            self._follower.catch_up(timeout_s)
        except (ForwardError, TopicReadError):
            return False
        return (nonce, writer.url) in self._state.confirmations
