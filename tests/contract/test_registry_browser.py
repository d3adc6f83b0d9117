"""Over HTTP: what a foreign page would have a browser send is refused, what programs and our own pages send is taken (F1)."""

from collections.abc import Iterator

import pytest

from moldau.testing import Broker
from support.registry import Rest, running_registry

SCHEMA = {"schema": '"string"'}
PATH = "/subjects/a/versions"


@pytest.fixture(scope="module")
def rest() -> Iterator[Rest]:
    with (
        Broker() as broker,
        running_registry(
            broker.bootstrap_servers, allowed_hosts=["r.example.org"], allowed_origins=["https://console.example.org"]
        ) as running,
    ):
        yield Rest(running.url)


def test_a_page_of_another_server_changes_nothing(rest: Rest) -> None:
    """A form, or fetch() in no-cors mode, sends text/plain; fetch() with JSON asks by OPTIONS first."""
    for headers in ({"Content-Type": "text/plain"}, {"Origin": "http://evil.org"}, {"Origin": "null"}, {"Host": "evil.org:8081"}):
        told = rest("POST", PATH, SCHEMA, headers=headers)
        assert told.status in (403, 415), headers
        assert told.code == told.status
    for headers in ({"Origin": "http://evil.org"}, {"Host": "evil.org"}):
        assert [rest(method, "/subjects", headers=headers).status for method in ("OPTIONS", "DELETE", "GET")] == [403, 403, 403]
    assert rest.ok("GET", "/subjects") == []


def test_programs_our_own_pages_and_allowed_ones_are_served(rest: Rest) -> None:
    for headers in (
        {},
        {"Host": "r.example.org:8081"},
        {"Host": "registry:8081", "Origin": "http://registry:8081"},
        {"Origin": "https://console.example.org"},
        {"Content-Type": "application/json; charset=utf-8"},
    ):
        assert rest("POST", PATH, SCHEMA, headers=headers).status == 200, headers
    asked = rest("OPTIONS", PATH, headers={"Origin": "https://console.example.org", "Access-Control-Request-Method": "POST"})
    assert (asked.status, asked.allow) == (200, "HEAD,GET,POST,OPTIONS")
