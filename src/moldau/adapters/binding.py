"""From the name of a listener to bound sockets."""

import errno
import socket

from moldau.model.host_port import for_resolver

BACKLOG = 1024
"""Connections that may wait to be accepted, unless the caller says otherwise."""
PORT_TRIES = 20
"""Tries to find a port that is free on every address of a name, when any port will do."""


def bind(host: str, port: int, backlog: int = BACKLOG) -> list[socket.socket]:
    """Listening sockets on every address of `host` (``localhost``: IPv4 and IPv6), all with the same port; 0 lets the system pick it.

    OSError if it cannot be.
    """
    tries = PORT_TRIES if port == 0 else 1
    while True:
        tries -= 1
        try:
            return _bind_all(_addresses(host), port, backlog)
        except OSError as error:
            if tries <= 0 or error.errno != errno.EADDRINUSE:
                raise


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    if host in ("", "*"):
        host = "0.0.0.0"
    found = socket.getaddrinfo(for_resolver(host), None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind_all(addresses: list[tuple[socket.AddressFamily, str]], port: int, backlog: int) -> list[socket.socket]:
    """One socket per address. A family that the machine lacks is left out, unless none would remain."""
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in addresses:
        try:
            listening = _listen(family, address, port, backlog)
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                missing = error
                continue
            for earlier in bound:
                earlier.close()
            raise
        bound.append(listening)
        port = listening.getsockname()[1]
    if not bound:
        raise missing or OSError(errno.EADDRNOTAVAIL, "no address to listen on")
    return bound


def _listen(family: socket.AddressFamily, address: str, port: int, backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind((address, port))
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening
