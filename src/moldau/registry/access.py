"""Refuses requests that a page of another origin makes a browser send.

A page of any server may send requests to a registry on its reader's loopback. What keeps it from doing harm, as there are no logins:

- `Host` has to be a name of ours: with DNS rebinding a page's own name leads here, and the browser takes us for its server;
- `Origin`, which browsers send with all requests of a page of another server, has to be ours or allowed;
- a body has to be of a JSON type: browsers ask first (OPTIONS) before they send one to another server.

A host that is an address is ours, and so is a name that cannot be in the public DNS: without a dot (localhost, the machine's, a
container's), or under localhost, internal, cluster.local. Other names are the one that the registry advertises and those that are allowed.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache

from moldau.registry.errors import RestError

JSON_TYPES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
"""What is spoken, the best first."""
ANY = "*"
_PRIVATE = (".localhost", ".internal", ".cluster.local")
_WITH_BODY = ("POST", "PUT")


class Access:
    """The rule. `hosts` are further names of this registry, `origins` further origins (``https://console.example.org``); ``*`` is any."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(name.lower().rstrip(".") for name in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check(self, headers: Mapping[str, str]) -> str | None:
        """The origin that may read the answer, if a page asks. RestError 403 for a host or an origin that is not allowed."""
        host = headers.get("host")
        if host is not None and not self._is_ours(host):
            raise RestError(
                403, 403, f"Host '{host}' is not a name of this schema registry; allow it with --allow-host or registry.allowed.hosts"
            )
        origin = headers.get("origin")
        if origin is None:
            return None
        asked = origin.lower().rstrip("/")
        if asked not in self._origins and ANY not in self._origins and asked not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise RestError(403, 403, f"Origin '{origin}' is not allowed; allow it with --allow-origin or registry.allowed.origins")
        return origin

    def _is_ours(self, host: str) -> bool:
        name = _name_in(host)
        return ANY in self._hosts or name in self._hosts or "." not in name or name.endswith(_PRIVATE) or _is_address(name)


def check_content_type(method: str, headers: Mapping[str, str]) -> None:
    """RestError 415 for a POST or PUT, or any request with a body, whose content type is not JSON."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = method in _WITH_BODY or headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if (has_body or kind) and method not in ("GET", "HEAD", "OPTIONS") and kind not in JSON_TYPES:
        raise RestError(415, 415, f"HTTP 415 Unsupported Media Type: '{kind}' is not accepted, only {', '.join(JSON_TYPES)}")


@lru_cache(maxsize=64)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str:
    """The name or address in a Host header, without port, brackets and the root's dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()
