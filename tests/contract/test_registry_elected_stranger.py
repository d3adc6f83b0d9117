"""A client of the cluster that joins the registries' group and is elected gets no registration, and ends none (F1)."""

import http.server
import threading
import time
from collections.abc import Iterator

import pytest

from moldau.registry import changes
from moldau.registry.election import Election, RegistryIdentity
from moldau.registry.peers import PATH
from moldau.testing import Broker
from support.registry import Rest, running_registry

pytestmark = pytest.mark.system

PATIENCE_S = 30.0
DOUBTED_S = 0.5
"""Less than by default: each of the two registries doubts the stranger for so long."""
HEARD: list[tuple[str, bytes]] = []


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers everything as a registry would that has done it."""

    def do_POST(self) -> None:
        HEARD.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"id": 4711}')

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def stranger() -> Iterator[int]:
    HEARD.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_stranger_that_is_elected_gets_nonces_and_no_schema(stranger: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "DOUBTED_S", DOUBTED_S)
    with Broker() as broker:
        election = Election(broker.bootstrap_servers, "schema-registry", RegistryIdentity("127.0.0.1", stranger))
        election.start()
        deadline = time.monotonic() + PATIENCE_S
        while not election.mine:
            assert time.monotonic() < deadline
            election.wait_for_change(0.1)
        try:
            with running_registry(broker.bootstrap_servers) as one, running_registry(broker.bootstrap_servers) as other:
                start = time.monotonic()
                found = [Rest(each.url).ok("POST", "/subjects/a/versions", {"schema": '"string"'})["id"] for each in (one, other)]
                assert found == [1, 1]
                assert Rest(other.url).ok("POST", "/subjects/b/versions", {"schema": '"int"'})["id"] == 2
                assert Rest(one.url).ok("POST", "/subjects/c/versions", {"schema": '"long"'})["id"] == 3
                assert time.monotonic() - start < PATIENCE_S + 2 * DOUBTED_S
                assert election.mine, "it was the elected one all the time"
            with running_registry(broker.bootstrap_servers, alone=True) as alone:
                heard = len(HEARD)
                assert Rest(alone.url).ok("POST", "/subjects/d/versions", {"schema": '"bytes"'})["id"] == 4
                assert len(HEARD) == heard
        finally:
            election.stop()
        assert {path for path, _ in HEARD} == {PATH}
        assert all(b"nonce" in body and b"schema" not in body for _, body in HEARD)


def test_the_registry_of_a_group_hands_on_to_the_one_that_confirms_itself() -> None:
    with Broker() as broker, running_registry(broker.bootstrap_servers) as one, running_registry(broker.bootstrap_servers) as other:
        for number, each in enumerate((one, other, one, other), 1):
            text = f'{{"type":"fixed","name":"f","size":{number}}}'
            assert Rest(each.url).ok("POST", f"/subjects/{number}/versions", {"schema": text})["id"] == number
        assert [one.writes, other.writes].count(True) == 1
        reader = other if one.writes else one
        assert reader.state.noop_writer == (one if one.writes else other).url
