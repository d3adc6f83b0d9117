"""Ends the session that a killed process has left with ZooKeeper, so that the next one over the same directory need not wait for its end.

A file in the first log directory has the present session's id and password, by which another client can end it. It is written, and read at
the next start, by the process that has the directory locked: the process before is dead then. A copy of the directory elsewhere may be that
of a process that lives, so the file also has the host and the path for which it was written. The servers refuse a session whose password
differs. After a clean stop there is nothing to end.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from moldau.adapters.zookeeper_coordination import ZookeeperCoordination
from moldau.model.errors import StorageError
from moldau.ports.coordination import SessionEvent, SessionState, WatchEvent
from moldau.ports.filesystem import FileSystem

_LOG = logging.getLogger(__name__)

FILE = "moldau-zookeeper-session"


class EarlierSession:
    """See the module."""

    def __init__(self, tree: ZookeeperCoordination, loop: asyncio.AbstractEventLoop, files: FileSystem, directory: str) -> None:
        self._tree = tree
        self._loop = loop
        self._files = files
        self._path = f"{directory}/{FILE}"
        self._place = f"{socket.gethostname()} {directory}"

    def end(self, was_clean: bool, done: Callable[[], object]) -> None:
        """End the session of the process before, if that did not; then call `done`, later. To be called with the directory locked."""
        earlier = self._read()
        if was_clean or earlier is None:
            self._loop.call_soon(self._ended, done)
        else:
            _LOG.info("ending the session that a process before has left with ZooKeeper: session=%#x", earlier[0] & (1 << 64) - 1)
            self._tree.end_other(earlier, lambda: self._ended(done))

    def _ended(self, done: Callable[[], object]) -> None:
        if not self._tree.is_closing:
            self._tree.listen(self._heard)
            done()

    def _heard(self, event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, SessionEvent) and event.state is SessionState.CONNECTED:
            self._write()

    def _read(self) -> tuple[int, bytes] | None:
        """The session that was noted last, here and by this directory's process."""
        try:
            if not self._files.exists(self._path):
                return None
            place, session, password = self._files.read(self._path).decode().splitlines()
            return (int(session), bytes.fromhex(password)) if place == self._place else None
        except (StorageError, ValueError) as error:
            _LOG.warning("session of the process before not known, its end is waited for: path=%s reason=%s", self._path, error)
            return None

    def _write(self) -> None:
        session_id, password = self._tree.credentials
        text = f"{self._place}\n{session_id}\n{password.hex()}\n"
        try:
            self._files.write_atomically(self._path, text.encode())
        except StorageError as error:
            _LOG.warning("session with ZooKeeper not noted, after a kill its end is waited for: path=%s reason=%s", self._path, error)
