"""A socket for the registry: bound, and not listening yet, so that clients are refused until it can answer them."""

import socket


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address. OSError names it."""
    address = "0.0.0.0" if host in ("", "*") else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only where the protocol is named
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
    except OSError as error:
        bound.close()
        reason = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"the schema registry cannot listen on {host}:{port}: {reason}") from error
    return bound
