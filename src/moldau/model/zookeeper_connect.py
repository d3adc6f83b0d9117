"""The setting `zookeeper.connect`: servers of an ensemble, and the node below which everything of this cluster is."""

from typing import NamedTuple

PORT = 2181


class ConnectString(NamedTuple):
    """Parsed ``host:port,host:port/chroot``."""

    servers: tuple[tuple[str, int], ...]
    chroot: str
    """A path, or "" for the root of the tree."""

    @property
    def hosts(self) -> str:
        """The servers, as ``host:port,host:port``."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parse_connect(text: str) -> ConnectString:
    """ValueError says what is wrong."""
    hosts, slash, rest = text.strip().partition("/")
    chroot = (slash + rest).rstrip("/")
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ValueError(f"{slash + rest} is not a path")
    return ConnectString(tuple(_server(each.strip()) for each in hosts.split(",")), chroot)


def _server(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host or ":" in port or (port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"{text or 'an empty server'} is not HOST:PORT")
    return host, int(port) if port else PORT
