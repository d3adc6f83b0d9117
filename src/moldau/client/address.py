"""Where brokers are: ``HOST:PORT``, several separated by commas."""

from typing import NamedTuple

from moldau.model.host_port import parse_host_port


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
