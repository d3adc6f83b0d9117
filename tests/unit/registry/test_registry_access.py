"""A page of somebody else's cannot make a browser change a registry, or read it under a name of the page's own (DNS rebinding, CSRF)."""

import pytest

from moldau.registry.access import JSON_TYPES, Access, check_content_type
from moldau.registry.errors import RestError

access = Access(["registry-1.example.org", "Host.Example.com."], ["https://console.example.org"])


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8081",
        "LOCALHOST.",
        "127.0.0.1:8081",
        "[::1]:8081",
        "192.168.7.7",
        "moldau",
        "registry:8081",
        "a.localhost:1",
        "host.docker.internal:8081",
        "registry.default.svc.cluster.local:8081",
        "registry-1.example.org:8081",
        "host.example.com",
    ],
)
def test_hosts_that_are_ours(host: str) -> None:
    assert access.check({"host": host}) is None


@pytest.mark.parametrize(
    "host", ["evil.example.org:8081", "localhost.evil.org", "127.0.0.1.evil.org", "127.0.0.1.nip.io", "[evil.org]", "1.2.3"]
)
def test_hosts_that_are_not(host: str) -> None:
    with pytest.raises(RestError, match="not a name of this schema registry") as refused:
        access.check({"host": host})
    assert (refused.value.status, refused.value.code) == (403, 403)
    assert Access(["*"]).check({"host": host}) is None


def test_a_client_without_a_host_is_none_of_a_browsers() -> None:
    assert access.check({}) is None


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:8081", True),
        ("https://localhost:8081", True),
        ("https://console.example.org", True),
        ("http://localhost:3000", False),
        ("http://evil.org", False),
        ("null", False),
        ("", False),
        ("https://console.example.org.evil.org", False),
    ],
)
def test_origins(origin: str, allowed: bool) -> None:
    headers = {"host": "localhost:8081", "origin": origin}
    if allowed:
        assert access.check(headers) == origin
    else:
        with pytest.raises(RestError, match="is not allowed"):
            access.check(headers)
    assert Access((), ["*"]).check(headers) == origin


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_has_to_say_that_it_is_json(method: str) -> None:
    for kind in (*JSON_TYPES, "application/json; charset=utf-8", "Application/VND.schemaregistry.v1+JSON ;q=1"):
        check_content_type(method, {"content-type": kind})
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/octet-stream"):
        with pytest.raises(RestError, match="415"):
            check_content_type(method, {"content-type": kind})
    with pytest.raises(RestError, match="415"):
        check_content_type(method, {})


def test_a_deletion_without_a_body_needs_no_type() -> None:
    """Browsers ask first before they send one elsewhere; curl sends it bare."""
    check_content_type("DELETE", {})
    check_content_type("DELETE", {"content-length": "0"})
    check_content_type("DELETE", {"content-type": "application/json"})
    for headers in ({"content-length": "2"}, {"transfer-encoding": "chunked"}, {"content-type": "text/plain"}):
        with pytest.raises(RestError, match="415"):
            check_content_type("DELETE", headers)
    check_content_type("GET", {"content-type": "text/plain"})
