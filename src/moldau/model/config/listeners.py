"""Listener addresses: ``PLAINTEXT://host:port``, host perhaps empty (every interface) or an IPv6 address in brackets."""

from typing import NamedTuple

from moldau.model.config.definition import ConfigValue, Validator


class Listener(NamedTuple):
    """Where to listen, or what address to hand out. An empty host means every interface."""

    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """Read one address. ValueError says what is wrong with it."""
    protocol, separator, address = text.partition("://")
    if not separator:
        protocol, address = "PLAINTEXT", text
    host, port = parse_host_port(address)
    return Listener(protocol, host, port)


def parse_host_port(text: str) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or ``:port``. ValueError says what is wrong with it."""
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


class PlaintextListeners(Validator):
    """Lists of PLAINTEXT addresses; the only security protocol there is yet, so that nobody takes an open port for a closed one."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether every item is such an address."""
        return isinstance(value, tuple) and bool(value) and all(_is_plaintext(item) for item in value)

    def __str__(self) -> str:
        return "of PLAINTEXT://HOST:PORT"


def _is_plaintext(text: str) -> bool:
    try:
        return parse_listener(text).protocol == "PLAINTEXT"
    except ValueError:
        return False
