"""``HOST:PORT``, as listeners and clients write it, and lists of them, separated by commas."""

from typing import NamedTuple


def parse_host_port(text: str) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or ``:port``. ValueError says what is wrong with it."""
    scheme, slashes, _ = text.partition("://")
    if slashes:
        raise ValueError(f"'{text}' is not HOST:PORT: leave out {scheme}://")
    host, colon, port_text = text.rpartition(":")
    if not colon:
        raise ValueError(f"'{text}' has no port (HOST:PORT)")
    if host.startswith("["):
        if not host.endswith("]"):
            raise ValueError(f"'{text}' has an unclosed bracket")
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"'{text}': an IPv6 address needs brackets, as in [::1]:9092")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65535:
        raise ValueError(f"'{text}': port '{port_text}' is not a number from 0 to 65535")
    return host, int(port_text)


def for_resolver(host: str) -> bytes | str:
    """A host for `socket.getaddrinfo`. For a str Python loads the codec of international names, 3 ms and 400 KB: ASCII ones go as bytes."""
    return host.encode("ascii") if host.isascii() else host


class Address(NamedTuple):
    """A host name or IP address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """The addresses of a bootstrap list, in order, at least one. ValueError names the fault."""
    addresses = [Address(*parse_host_port(part.strip())) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("no broker is named (HOST:PORT)")
    for address in addresses:
        if not address.host or not address.port:
            raise ValueError(f"'{address}': a host and a port above 0 are needed to connect")
    return addresses
