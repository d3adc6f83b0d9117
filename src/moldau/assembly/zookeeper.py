"""The coordination tree in ZooKeeper, by the broker's settings."""

import asyncio
import logging

from moldau.adapters.zookeeper_coordination import ZookeeperCoordination, open_acl
from moldau.adapters.zookeeper_requests import CREATOR, CREATOR_AND_READERS, OPEN, Acl
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import CoordinationError
from moldau.model.zookeeper_connect import parse_connect
from moldau.ports.coordination import SessionEvent, SessionState, WatchEvent

_LOG = logging.getLogger(__name__)

WAITING_LINE_S = 2.0
"""How often a start that waits says so."""

_SECRETS = ("/config/users", "/delegation_token")
_OF_CONSUMERS = "/consumers"


def closed_acl(path: str) -> Acl:
    """As Kafka's `zookeeper.set.acl`: consumers of old write their own nodes; of the rest those with secrets are read by brokers only."""
    if _is_below(path, _OF_CONSUMERS):
        return OPEN
    return CREATOR if any(_is_below(path, each) for each in _SECRETS) else CREATOR_AND_READERS


def open_zookeeper(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> ZookeeperCoordination:
    """Begin to connect to the servers of `zookeeper.connect`. CoordinationError for settings that do not fit."""
    digest = None
    file = config.value("zookeeper.digest.file")
    if isinstance(file, str):
        digest = _read_digest(file)
    elif config.value("zookeeper.set.acl"):
        raise CoordinationError("zookeeper.set.acl needs zookeeper.digest.file: without it, no one could change the nodes", retriable=False)
    return ZookeeperCoordination(
        parse_connect(str(config.value("zookeeper.connect"))),
        loop,
        session_timeout_ms=config.int("zookeeper.session.timeout.ms"),
        in_flight_max=config.int("zookeeper.max.in.flight.requests"),
        digest=digest,
        acl_of=closed_acl if config.value("zookeeper.set.acl") else open_acl,
    )


async def wait_connected(tree: ZookeeperCoordination, config: BrokerConfig, interrupted: "asyncio.Future[None]") -> None:
    """Until the first session begins. CoordinationError after `zookeeper.connection.timeout.ms`; what `interrupted` is ended with."""
    servers = config.value("zookeeper.connect")
    timeout_ms = config.value("zookeeper.connection.timeout.ms") or config.int("zookeeper.session.timeout.ms")
    assert isinstance(timeout_ms, int), "a number of milliseconds"
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_ms / 1000
    connected = asyncio.Event()

    def heard(event: SessionEvent | WatchEvent) -> None:
        if isinstance(event, SessionEvent) and event.state is SessionState.CONNECTED:
            connected.set()

    tree.listen(heard)
    waiting = asyncio.ensure_future(connected.wait())
    try:
        while not connected.is_set():
            left = end - loop.time()
            reason = tree.failure or "no answer"
            if left <= 0:
                raise CoordinationError(
                    f"{servers}: no connection to ZooKeeper within {timeout_ms} ms: {reason} (zookeeper.connection.timeout.ms)",
                    retriable=True,
                )
            await asyncio.wait((waiting, interrupted), timeout=min(left, WAITING_LINE_S), return_when=asyncio.FIRST_COMPLETED)
            if interrupted.done():
                interrupted.result()
            if not connected.is_set():
                _LOG.warning("waiting for ZooKeeper: servers=%s reason=%s", servers, tree.failure or "no answer")
    finally:
        waiting.cancel()


def _read_digest(file: str) -> str:
    try:
        with open(file) as opened:
            text = opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CoordinationError(f"zookeeper.digest.file: {file}: {reason}", retriable=False) from error
    user, colon, password = text.partition(":")
    if not user or not colon or not password or "\n" in text:
        raise CoordinationError(f"zookeeper.digest.file: {file}: not one line user:password", retriable=False)
    return text


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
