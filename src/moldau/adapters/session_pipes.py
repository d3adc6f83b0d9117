"""Two named pipes per session of a shared store: by one others see that its process lives, by the other they wake it.

    3-life    opened for writing by the process of session 3 only. The kernel closes it however that process ends, and not while it is
              stopped. Then its readers are at end-of-file, which their event loops notify at once. Nothing is written to it.
    3         read by session 3. A message is the sender's session id, 8 bytes, so that none is torn: "I live, and there may be changes". A
              pipe that is full has messages enough: another one is dropped.

Named pipes rather than Unix-domain sockets: nothing has to be accepted, and their paths may be longer than 107 bytes. Rather than a file
lock: its end can be waited for by an event loop. No process id is looked at.

A process that creates or removes pipes holds the store's write lock, so that none is removed as a leftover while its session begins.
"""

import errno
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, Protocol

from moldau.model.errors import CoordinationError

_MESSAGE = Struct(">Q")
_READ_BYTES = 8192 * _MESSAGE.size
_LIFE = "-life"


class Readers(Protocol):
    """The part of an event loop that is needed here."""

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> object:
        """Have `callback` called as long as the file is readable or at its end."""

    def remove_reader(self, fd: int) -> object:
        """Do not call it any more."""


class OwnPipes:
    """Those of a session of this process."""

    def __init__(self, directory: str, session_id: int) -> None:
        """Create them, in place of leftovers. CoordinationError."""
        self._names = [f"{directory}/{session_id}{_LIFE}", f"{directory}/{session_id}"]
        self._files: list[int] = []
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            for name in self._names:
                with suppress(FileNotFoundError):
                    os.unlink(name)
                os.mkfifo(name, 0o600)
                self._files.append(os.open(name, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            self.close()
            self.remove()
            raise CoordinationError(f"{error.filename or directory}: {error.strerror}", retriable=error.errno == errno.ENOSPC) from error

    @property
    def inbox(self) -> int:
        """The file that is readable when there are messages."""
        return self._files[1]

    def receive(self) -> list[int]:
        """The senders of the messages that have come."""
        try:
            return [sender for (sender,) in _MESSAGE.iter_unpack(os.read(self.inbox, _READ_BYTES))]
        except BlockingIOError:
            return []

    def remove(self) -> None:
        """Remove their names."""
        for name in self._names:
            with suppress(OSError):
                os.unlink(name)

    def close(self) -> None:
        """Close them: to others this process has ended."""
        while self._files:
            os.close(self._files.pop())


class _Peer(NamedTuple):
    life: int
    outbox: int

    def close(self) -> None:
        os.close(self.life)
        os.close(self.outbox)


class PeerPipes:
    """Those of the other sessions."""

    def __init__(self, directory: str, readers: Readers, ended: Callable[[int], object]) -> None:
        """`ended` is called with the id of a session whose process has ended."""
        self._directory = directory
        self._readers = readers
        self._ended = ended
        self._peers: dict[int, _Peer] = {}

    def update(self, session_ids: Sequence[int], sender: int) -> list[int]:
        """Have pipes of these sessions, and of no others; a new one gets a message. Returns those whose process has ended."""
        for session_id in [each for each in self._peers if each not in session_ids]:
            self._close(session_id)
        dead = []
        for session_id in session_ids:
            if session_id in self._peers:
                continue
            try:
                peer = _open(self._directory, session_id)
            except OSError:  # no file can be opened now: the next update tries again
                continue
            if peer is None:
                dead.append(session_id)
                continue
            self._peers[session_id] = peer
            self._readers.add_reader(peer.life, self._at_end, session_id)
            _send(peer, sender)
        return dead

    def notify(self, sender: int) -> None:
        """Send a message to each."""
        for peer in self._peers.values():
            _send(peer, sender)

    def close(self) -> None:
        """Close all."""
        for session_id in list(self._peers):
            self._close(session_id)

    def _at_end(self, session_id: int) -> None:
        if not _is_at_end(self._peers[session_id].life):  # the event was of an earlier file with this number
            return
        self._close(session_id)
        self._ended(session_id)

    def _close(self, session_id: int) -> None:
        peer = self._peers.pop(session_id)
        self._readers.remove_reader(peer.life)
        peer.close()


def is_alive(directory: str, session_id: int) -> bool:
    """Whether the process of a session lives; also when that cannot be found out."""
    try:
        peer = _open(directory, session_id)
    except OSError:
        return True
    if peer is not None:
        peer.close()
    return peer is not None


def remove_leftovers(directory: str, session_ids: Collection[int]) -> None:
    """Remove the pipes of all but these sessions, and the directory when it is empty."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.removesuffix(_LIFE) not in map(str, session_ids):
                os.unlink(f"{directory}/{name}")
        if not session_ids:
            os.rmdir(directory)


def _send(peer: _Peer, sender: int) -> None:
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(peer.outbox, _MESSAGE.pack(sender))


def _is_at_end(life: int) -> bool:
    """Whether no process has it open for writing."""
    try:
        return not os.read(life, 1)
    except BlockingIOError:
        return False


def _open(directory: str, session_id: int) -> _Peer | None:
    """None if its process has ended. OSError."""
    files: list[int] = []
    try:
        files.append(os.open(f"{directory}/{session_id}{_LIFE}", os.O_RDONLY | os.O_NONBLOCK))
        if _is_at_end(files[0]):
            raise BrokenPipeError
        files.append(os.open(f"{directory}/{session_id}", os.O_WRONLY | os.O_NONBLOCK))
        return _Peer(*files)
    except OSError as error:
        for file in files:
            os.close(file)
        if isinstance(error, FileNotFoundError | BrokenPipeError) or error.errno == errno.ENXIO:
            return None
        raise
