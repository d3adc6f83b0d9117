"""How much of long requests is decoded at once, over all connections.

An element of a request (a topic, a partition, an offset) takes up to a thousand bytes, decoded and answered: a request of 50,000 takes
45 MB. All long requests share one thread, so they end no sooner when many are decoded together; they only take more memory. Each takes
its elements from a pool before it is decoded and gives them back at its end. While there are none it waits with its undecoded frame,
which counts in `RequestMemory`, and so do those after it: first come, first served.

* How many elements a frame has shows when it is decoded. So it is decoded as one of at most `SHORT_MAX` first, and if that fails again, as
  one of `request.decoded.elements.max`. After that it keeps as many as it has.
* Requests of up to `SHORT_MAX` have a pool of their own, half as large as that of the others, of which one of the longest is handled at a
  time: a consumer of 500 partitions does not wait for those with 50,000.
* Produce and Fetch have pools of their own, because the handlers of other requests may wait for the disk for seconds.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from moldau.model.errors import ProtocolError
from moldau.model.steps import Pause, Suspension

if TYPE_CHECKING:
    from moldau.broker.admission.memory import Holder, RequestMemory

R = TypeVar("R")

SHORT_MAX = 1_000
"""Elements of a request that does not wait for longer ones."""


class ElementPool:
    """Elements that requests have taken, and the requests that wait for some."""

    __slots__ = ("_queue", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self._queue: deque[tuple[LongRequest, int, int, Callable[[], object]]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def take(self, request: "LongRequest", count: int, elements_max: int) -> Generator[Pause, None, None]:
        """Take `count` for `request`, after those before it; `elements_max` is what all may have together, one may always have its own."""
        if self._queue or (self.taken and self.taken + count > elements_max):
            yield Suspension(partial(self._wait, request, count, elements_max))
        else:
            self._give(request, count)

    def give_back(self, count: int) -> None:
        """`count` are free again."""
        self.taken -= count
        while self._queue:
            request, wanted, elements_max, resume = self._queue[0]
            if self.taken and self.taken + wanted > elements_max:
                break
            self._queue.popleft()
            if not request.ended:
                self._give(request, wanted)
            resume()

    def _wait(self, request: "LongRequest", count: int, elements_max: int, resume: Callable[[], object]) -> None:
        self._queue.append((request, count, elements_max, resume))

    def _give(self, request: "LongRequest", count: int) -> None:
        self.taken += count
        request.pool, request.elements = self, count


class ElementPools:
    """Of some kind of requests."""

    __slots__ = ("long", "short")

    def __init__(self) -> None:
        self.short = ElementPool()
        self.long = ElementPool()

    @property
    def waiting(self) -> int:
        """Requests that wait, undecoded."""
        return self.short.waiting + self.long.waiting


class LongRequest:
    """What one long request takes: memory for its frame, until `frame_freed`, and elements. The handler that makes it calls `end`."""

    __slots__ = ("_elements_max", "_holder", "_memory", "_pools", "_size", "elements", "ended", "pool")

    def __init__(self, memory: "RequestMemory", holder: "Holder", size: int, pools: ElementPools, elements_max: int) -> None:
        """Its frame has `size` bytes, which count for the connection `holder` from now on."""
        self._memory = memory
        self._holder = holder
        self._size = size
        self._pools = pools
        self._elements_max = elements_max
        self.pool: ElementPool | None = None
        self.elements = 0
        """What it has taken of `pool`."""
        self.ended = False
        memory.keep(holder, size)

    def decoded(self, decode: Callable[[int], Generator[Pause, None, R]]) -> Generator[Pause, None, R]:
        """What `decode(most)` decodes, up to `most` elements, once there is room for them. ProtocolError."""
        short, elements_max = self._pools.short, self._elements_max
        if elements_max > SHORT_MAX:
            yield from short.take(self, SHORT_MAX, max(elements_max // 2, SHORT_MAX))
            try:
                return (yield from decode(SHORT_MAX))
            except ProtocolError:  # if it is not the number of elements, it is raised again below
                self.keep(0)
        yield from self._pools.long.take(self, elements_max, elements_max)
        return (yield from decode(elements_max))

    def keep(self, elements: int) -> None:
        """It has no more than so many `elements`: give the others back."""
        excess = self.elements - elements
        if self.pool is not None and excess > 0:
            self.elements = elements
            self.pool.give_back(excess)

    def frame_freed(self) -> None:
        """Its frame takes no memory any more."""
        size, self._size = self._size, 0
        if size:
            self._memory.finish(self._holder, size)

    def end(self) -> None:
        """It is handled, or given up."""
        self.ended = True
        self.keep(0)
        self.frame_freed()
