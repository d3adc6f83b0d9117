"""A warning for a listener beyond loopback: there is no authentication yet, so every client that reaches the port may do everything."""

import logging
from collections.abc import Iterable

_LOG = logging.getLogger(__name__)

LOOPBACK = ("127.", "::ffff:127.")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address, or a name that resolves to one."""
    return host in ("localhost", "::1") or host.startswith(LOOPBACK)


def warn_if_exposed(what: str, addresses: Iterable[tuple[str, int]], remedy: str) -> None:
    """Log the addresses of `what` that others than this machine reach, and the `remedy`; nothing if there are none."""
    exposed = [f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}" for host, port in addresses if not is_loopback(host)]
    if exposed:
        _LOG.warning(
            "LISTENING BEYOND LOOPBACK WITHOUT AUTHENTICATION: what=%s addresses=%s; anyone who reaches it may read, write and delete"
            " everything; restrict access with a firewall, or %s",
            what,
            ",".join(exposed),
            remedy,
        )
