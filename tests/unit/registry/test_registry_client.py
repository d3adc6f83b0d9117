"""The client's connections: several addresses, connections that went stale, answers that are none; over a scripted HTTP server."""

import copy
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from moldau.registry.client import IncompatibleSchemaError, RegistryClient, RegistryError, RegistryUnavailableError, UnknownSchemaError
from moldau.registry.rest_connection import parse_urls


class Scripted(BaseHTTPRequestHandler):
    """Answers from a table; counts what it was asked."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, b'{"error_code":40403,"message":"Schema not found"}'))
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/mode":
            self.close_connection = True  # without saying so before

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Scripted.answers = {
        "/schemas/ids/1": (200, b'{"schema":"\\"int\\"","references":[{"name":"n","subject":"s","version":2}]}'),
        "/config": (200, b'{"compatibilityLevel":"FULL"}'),
        "/mode": (200, b'{"mode":"READWRITE"}'),
        "/subjects": (200, b"<html>"),
        "/subjects/s/versions": (503, b"busy"),
        "/subjects/t/versions": (409, b'{"error_code":409,"message":"no"}'),
    }
    Scripted.asked = []
    http = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()
    thread.join()


def test_what_cannot_change_is_asked_for_once(server: str) -> None:
    with RegistryClient(f"http://user:pass%20word@{server}") as client:
        first = client.schema(1)
        assert client.schema(1) is first
        assert (first.type, first.text, first.references[0].version) == ("AVRO", '"int"', 2)
        assert Scripted.asked == [("/schemas/ids/1", "Basic dXNlcjpwYXNzIHdvcmQ=")]
        for _ in range(2):
            with pytest.raises(UnknownSchemaError):
                client.schema(2)
        assert len(Scripted.asked) == 3, "what does not exist may be registered later"


def test_a_connection_that_went_stale_is_replaced(server: str) -> None:
    with RegistryClient(server) as client:
        assert client._rest.request("GET", "/mode") == {"mode": "READWRITE"}
        assert client.compatibility() == "FULL"
        assert client.compatibility() == "FULL"


def test_addresses_are_tried_in_turn_and_the_dead_one_last(server: str) -> None:
    with RegistryClient(f"127.0.0.1:1,{server}") as client:
        assert client.compatibility() == "FULL"
        assert [target.port for target in client._rest._targets][-1] == 1
    with (
        RegistryClient("127.0.0.1:1,127.0.0.1:2") as client,
        pytest.raises(RegistryUnavailableError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"),
    ):
        client.subjects()


def test_an_address_that_cannot_do_it_now_is_left_for_the_next(server: str) -> None:
    """A registry that lost its log or its writer answers 500; one beside it may have both. A refusal is one everywhere."""
    Scripted.answers["/lost/config"] = (500, b'{"error_code":50004,"message":"Leader not known."}')
    Scripted.answers["/busy/config"] = (503, b"busy")
    Scripted.answers["/strict/subjects/t/versions"] = Scripted.answers["/subjects/t/versions"]
    with RegistryClient(f"{server}/lost,{server}/busy,{server}") as client:
        assert client.compatibility() == "FULL"
    with RegistryClient(f"{server}/lost,{server}/busy,127.0.0.1:1") as client:
        with pytest.raises(RegistryError, match="Leader not known") as lost:
            client.compatibility()
        assert (lost.value.status, lost.value.code) == (500, 50004)
    with RegistryClient(f"{server}/strict,{server}") as client, pytest.raises(RegistryError, match="no"):
        client.versions("t")
    assert [path for path, _ in Scripted.asked][-1] == "/strict/subjects/t/versions"


def test_answers_that_are_none_and_answers_with_errors(server: str) -> None:
    with RegistryClient(server) as client:
        with pytest.raises(RegistryError, match="is this a schema registry"):
            client.subjects()
        with pytest.raises(RegistryError, match="busy") as busy:
            client.versions("s")
        assert (busy.value.status, busy.value.code) == (503, 503)


@pytest.mark.parametrize("url", ["", " , ", "ftp://host", "http://", "http://host:port", "http://host/?a=b", "htp:/x", "http:/x", "host:"])
def test_urls_that_cannot_be_read_are_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words differ
        RegistryClient(url)


def test_urls_have_defaults_and_prefixes() -> None:
    assert [str(target) for target in parse_urls("http://host, other:9, https://other/contexts/.c/,http://[::1]:9")] == [
        "http://host:8081",
        "http://other:9",
        "https://other:443/contexts/.c",
        "http://[::1]:9",
    ]


def test_a_client_and_its_errors_travel_to_other_processes() -> None:
    client = pickle.loads(pickle.dumps(RegistryClient("http://host:1", timeout_s=3)))
    assert (client.url, client.timeout_s) == ("http://host:1", 3)
    incompatible = IncompatibleSchemaError("s", "b", ["c", "d"])
    for error in (RegistryError(404, 1, "a"), UnknownSchemaError(4), incompatible, RegistryUnavailableError("c")):
        again = copy.deepcopy(pickle.loads(pickle.dumps(error)))
        assert (type(again), str(again)) == (type(error), str(error))
    assert str(incompatible) == "subject s: the schema is not compatible with an earlier version: c; and 1 more"


@pytest.mark.parametrize("text", ["registry", "not a url", "http://not a url", "ftp://host:1", "host:port", " , "])
def test_what_is_no_address_is_refused_before_anything_is_asked(text: str) -> None:
    """A word alone is more often a slip than a host with the usual port."""
    with pytest.raises(ValueError, match=r"HOST:PORT|Port could not"):
        parse_urls(text)
