"""A short Fetch request: answered at once, or when there is enough."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.handlers.fetch.operation import Answer, Fetch, release_ranges
from moldau.broker.replicas.purgatory import DelayedFetch

if TYPE_CHECKING:
    from moldau.broker.request import RequestSource
    from moldau.ports.transport import Part


def answer_or_wait(fetch: Fetch, source: "RequestSource", waiting_cost: int) -> "list[Part] | WaitingFetch":
    """The response, or the request that waits and has its place among those of the connection; there it counts `waiting_cost` bytes."""
    topics = fetch.read()
    if fetch.urgent or not fetch.led or not fetch.may_wait or (missing := fetch.missing_bytes()) <= 0:
        return fetch.encode(topics)
    release_ranges(topics)
    exchange = source.reserve(waiting_cost=waiting_cost)
    waiting = WaitingFetch(fetch, missing)
    exchange.delay(waiting)
    waiting.start(exchange.reply, exchange.abort)
    return waiting


class WaitingFetch:
    """A fetch that cannot be answered yet. `start` lets it wait; `cancel` gives it up."""

    __slots__ = ("_fetch", "_missing_bytes", "_request")

    def __init__(self, fetch: Fetch, missing_bytes: int) -> None:
        self._fetch = fetch
        self._missing_bytes = missing_bytes
        self._request: DelayedFetch | None = None

    def start(self, answer: Answer, give_up: Callable[[], object]) -> None:
        """Wait; one of the two is called, once: `give_up` if a bug keeps it from being answered."""
        fetch = self._fetch
        fetch.answer = answer
        led = tuple(fetch.led)
        self._request = DelayedFetch(self._attempt, led, self._missing_bytes, give_up, isolation=fetch.isolation, weight=len(led))
        fetch.broker.purgatory.wait(self._request, fetch.frame.max_wait_ms)

    def finish(self) -> None:
        """Answer at once with what there is."""
        if self._request is not None:
            self._fetch.broker.purgatory.finish(self._request)

    def cancel(self) -> None:
        """No connection waits for the answer any more."""
        self._fetch.answer = None  # it refers to the place of the answer, and that to this
        self._fetch.release()
        if self._request is not None:
            self._fetch.broker.purgatory.cancel(self._request)

    def _attempt(self, expired: bool) -> bool:
        return self._fetch.attempt(expired, self._request)
