"""Listener addresses: ``PLAINTEXT://host:port``, host perhaps empty (every interface) or an IPv6 address in brackets."""

from typing import NamedTuple

from moldau.model.config.definition import ConfigValue, Validator
from moldau.model.host_port import parse_host_port


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
