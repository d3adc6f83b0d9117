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
        ready = [(fd, self._callbacks[fd]) for fd, _ in self._poll.poll(wait_s * 1000)]
        for fd, found in ready:
            if self._callbacks.get(fd) is found:  # one before it may have removed it, and the number may be another file's
                callback, args = found
                callback(*args)
        return bool(ready)
