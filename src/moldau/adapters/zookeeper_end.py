"""Ends a session with ZooKeeper that another client has begun: who knows its password may continue it, and close it."""

import logging

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

_LOG = logging.getLogger(__name__)
_KAZOO_LOG = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)

LIMIT_S = 5.0


def end_session(hosts: str, session: tuple[int, bytes], timeout_s: float) -> None:
    """Continue the session `(id, password)` and close it. Where it has ended already, that of a new client is closed instead. Waits."""
    client = KazooClient(hosts=hosts, client_id=session, timeout=timeout_s, logger=_KAZOO_LOG)
    try:
        client.start(LIMIT_S)
    except (KazooTimeoutError, OSError) as error:
        _LOG.warning("session of the process before not ended, its end is waited for: reason=%s", str(error) or type(error).__name__)
    finally:
        client.stop()
        client.close()
