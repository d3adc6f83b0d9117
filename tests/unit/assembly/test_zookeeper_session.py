"""A process ends the session that the one before has left with ZooKeeper, if it was that of the same directory and was killed."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from moldau.assembly.zookeeper_session import FILE, EarlierSession
from moldau.ports.coordination import Listener, SessionEvent, SessionState
from moldau.testing.disk import ForgetfulDisk


class Tree:
    """A connected session."""

    def __init__(self, session_id: int) -> None:
        self.credentials = session_id, b"secret of %d" % session_id
        self.ended: list[tuple[int, bytes]] = []
        self.is_closing = False
        self.listeners: list[Listener] = []

    def end_other(self, session: tuple[int, bytes], done: Callable[[], object]) -> None:
        self.ended.append(session)
        done()

    def listen(self, listener: Listener) -> None:
        self.listeners.append(listener)
        listener(SessionEvent(SessionState.CONNECTED, self.credentials[0]))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    for path in ("/data", "/copy"):
        disk.make_directory(path)
    return disk


def start(loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk, tree: Tree, path: str = "/data", *, was_clean: bool = False) -> bool:
    """Whether the start continues."""
    done: list[bool] = []
    EarlierSession(tree, loop, disk, path).end(was_clean, lambda: done.append(True))  # type: ignore[arg-type]
    loop.call_soon(loop.stop)
    loop.run_forever()
    return bool(done)


def test_the_session_of_a_killed_process_is_ended_and_the_present_one_noted(loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk) -> None:
    first, second, third = Tree(-7), Tree(8), Tree(9)
    assert start(loop, disk, first)
    assert first.ended == []
    assert start(loop, disk, second)
    assert second.ended == [first.credentials]
    second.credentials = 10, b"next"
    second.listeners[0](SessionEvent(SessionState.CONNECTED, 10))
    assert start(loop, disk, third)
    assert third.ended == [(10, b"next")], "the last one that it had"


def test_after_a_clean_stop_nothing_is_ended(loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk) -> None:
    start(loop, disk, Tree(7))
    tree = Tree(8)
    assert start(loop, disk, tree, was_clean=True)
    assert tree.ended == []


def test_a_copy_of_a_directory_does_not_end_the_session_of_the_one_that_it_was_copied_from(
    loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk
) -> None:
    start(loop, disk, Tree(7))
    disk.write_atomically(f"/copy/{FILE}", disk.read(f"/data/{FILE}"))
    tree = Tree(8)
    assert start(loop, disk, tree, "/copy")
    assert tree.ended == []


HERE = f"{socket.gethostname()} /data\n".encode()


@pytest.mark.parametrize("data", [b"", b"\xff", HERE, HERE + b"x\n00\n", HERE + b"1\nzz\n"])
def test_a_file_that_says_nothing_ends_nothing(
    loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk.write_atomically(f"/data/{FILE}", data)
    tree = Tree(8)
    with caplog.at_level(logging.WARNING):
        assert start(loop, disk, tree)
    assert tree.ended == []
    assert "session of the process before not known" in caplog.text


def test_a_disk_that_fails_does_not_keep_a_broker_from_its_start(loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk) -> None:
    start(loop, disk, Tree(7))
    disk.fail = lambda _operation, path: FILE in path
    assert start(loop, disk, Tree(8))


def test_a_start_that_was_given_up_meanwhile_does_not_continue(loop: asyncio.AbstractEventLoop, disk: ForgetfulDisk) -> None:
    tree = Tree(7)
    tree.is_closing = True
    assert not start(loop, disk, tree)
    assert not disk.exists(f"/data/{FILE}")
