"""Accepting connections when the process has no descriptor left, not even the one in reserve."""

import errno
import os
from collections.abc import Callable
from typing import Any, cast

import pytest

from moldau.adapters.asyncio_server import ACCEPT_PAUSE_S, Server, ServerLimits
from moldau.broker.admission.admission import ConnectionQuota


class ScriptedLoop:
    """Notes what is watched and what is to be called later."""

    def __init__(self) -> None:
        self.watched: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self.later: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []

    def add_reader(self, descriptor: int, callback: Callable[..., object], *arguments: object) -> None:
        self.watched[descriptor] = (callback, arguments)

    def remove_reader(self, descriptor: int) -> None:
        self.watched.pop(descriptor, None)

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: object) -> None:
        self.later.append((delay, callback, arguments))

    def time(self) -> float:
        return 0.0


class CrowdedSocket:
    """Somebody waits to be accepted, and there is no descriptor for it."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False

    def fileno(self) -> int:
        return 99

    def accept(self) -> None:
        self.asked += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> tuple[Server, ScriptedLoop, CrowdedSocket]:
    """A server that listens, in a process whose descriptors are all taken in the meantime."""
    loop, listening = ScriptedLoop(), CrowdedSocket()
    server = Server(cast("Any", loop), cast("Any", None), ServerLimits(idle_max_ms=-1), ConnectionQuota())
    server.serve([("PLAINTEXT", cast("Any", listening))])
    loop.later.clear()

    def taken(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", taken)
    return server, loop, listening


def test_without_a_descriptor_the_loop_is_not_kept_busy(crowded: tuple[Server, ScriptedLoop, CrowdedSocket]) -> None:
    server, loop, listening = crowded
    callback, arguments = loop.watched[99]
    callback(*arguments)
    assert not loop.watched, "else it would be called again at once, for ever"
    assert listening.asked == 2, "the second time with the descriptor that was in reserve"
    ((delay, again, arguments),) = loop.later
    assert delay == ACCEPT_PAUSE_S
    again(*arguments)
    assert 99 in loop.watched
    assert server.refused == 1


def test_a_server_that_has_stopped_meanwhile_does_not_listen_again(crowded: tuple[Server, ScriptedLoop, CrowdedSocket]) -> None:
    server, loop, listening = crowded
    callback, arguments = loop.watched[99]
    callback(*arguments)
    server.stop_listening()
    ((_, again, arguments),) = loop.later
    again(*arguments)
    assert listening.closed
    assert not loop.watched
