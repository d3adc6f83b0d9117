"""Ports for servers that are given one."""

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 without a listener. The system gives none of these out by itself, so none is taken before a server takes it, after
    seconds, nor while it is started again.
    """
    found: set[int] = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)
