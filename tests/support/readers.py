"""Files that are watched as by an event loop, looked at when a test says so."""

import select
from collections.abc import Callable


class PolledReaders:
    """A :class:`moldau.adapters.session_pipes.Readers`."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self._poll.register(fd, select.POLLIN)
        self._callbacks[fd] = (callback, args)

    def remove_reader(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._callbacks[fd]

    def run(self, wait_s: float = 0.0) -> bool:
        """Call for each file that is readable or becomes so: whether there was one."""
        ready = self._poll.poll(wait_s * 1000)
        for fd, _ in ready:
            if fd in self._callbacks:  # one before it may have removed it
                callback, args = self._callbacks[fd]
                callback(*args)
        return bool(ready)
