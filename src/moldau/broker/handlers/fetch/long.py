"""A Fetch request of many partitions, in steps: decoded, read and encoded piece by piece, and read again so when it waits and more comes.

It is watched by each partition from when that is read, so that no append between two steps is missed: what comes while it reads lowers
what is missing, and when that is nothing it reads once more. The connection is held for the first reading only.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from moldau.broker.handlers.fetch.call import FetchCall, ReadPermit
from moldau.broker.handlers.fetch.operation import (
    READING_S,
    Answer,
    Fetch,
    Results,
    release_ranges,
    wanted_only,
)
from moldau.broker.replicas.purgatory import DelayedFetch
from moldau.model.errors import PeerError, StorageError
from moldau.model.steps import Pause, Steps
from moldau.ports.transport import Part, release_parts
from moldau.protocol.fast.fetch import (
    NO_EPOCH,
    FetchFrame,
    FetchFramePartition,
    decode_fetch_in_steps,
    encode_fetch_response_in_steps,
)

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SlicedWork
    from moldau.broker.handlers.fetch.call import Services
    from moldau.broker.request import Exchange
    from moldau.protocol.fast.fetch import FetchPartitionResult

_LOG = logging.getLogger(__name__)

NAMED_AT_ONCE = 500
"""Partitions that are looked through in one step."""
PARTITIONS_AT_ONCE = 32
"""Partitions that are read in one step: one or two milliseconds."""


class LongFetch:
    """One request: `steps` are run first; it may wait after them. `finish` answers it with what there is, `cancel` gives it up."""

    def __init__(
        self,
        broker: "Services",
        exchange: "Exchange",
        permit: ReadPermit,
        frame: bytes,
        version: int,
        correlation_id: int,
        received_s: float,
    ) -> None:
        """`frame` counts for the connection of `exchange` until it is decoded."""
        self._broker = broker
        self._long = broker.admission.long_data_request(exchange.holder, len(frame))
        self._call = FetchCall(broker, exchange.holder, permit, version, correlation_id, received_s)
        self._frame = frame
        self._answer: Answer = exchange.reply
        self._give_up: Callable[[], object] = exchange.abort
        self._fetch: Fetch
        self._release: Callable[[], object] = _nothing
        """The next request of the session may be handled."""
        self._request: DelayedFetch | None = None
        self._work: SlicedWork | None = None
        """What reads again."""
        self._reads = True
        self._again = False
        """Whether something has happened to a partition while it reads."""
        self._expired = False

    def steps(self, body: int) -> Steps:
        """Decode the request, whose body starts at `body`, and read; to be run at least to its first pause. ProtocolError."""
        try:
            decoded = yield from self._long.decoded(
                lambda most: decode_fetch_in_steps(memoryview(self._frame), body, self._call.version, most)
            )
            self._frame = b""
            self._long.frame_freed()
            request = yield from _each_once(wanted_only(decoded))
            del decoded
            yield from self._first_reading(request)
        finally:
            self._long.end()

    def _first_reading(self, request: FetchFrame) -> Steps:
        broker = self._broker
        self._long.keep(sum(len(wanted) + 1 for _, wanted in request.topics))
        if request.session_epoch == NO_EPOCH and not request.session_id:
            fetch = Fetch(*self._call, request)
        else:
            from moldau.broker.handlers.fetch.session_fetch import enter_in_steps

            try:
                fetch = yield from enter_in_steps(self._call, request, self)
            except PeerError as error:
                self._answer(Fetch(*self._call, request).refuse(error.code))
                return
        self._fetch, self._release = fetch, fetch.release
        if fetch.may_wait:
            count = sum(len(wanted) for _, wanted in fetch.frame.topics)
            self._request = DelayedFetch(self._attempt, fetch.led, fetch.enough, self._give_up, isolation=fetch.isolation, weight=count)
            broker.purgatory.wait(self._request, request.max_wait_ms)
        try:
            yield from self._read()
        except BaseException:  # it may be dropped
            fetch.release()
            raise

    def finish(self) -> None:
        """Answer with what there is."""
        self._expired = True
        if self._request is not None:
            self._broker.purgatory.finish(self._request)

    def cancel(self) -> None:
        """No connection waits for the answer any more."""
        self._answer = self._give_up = _nothing  # they refer to the place of the answer, and that to this
        if self._work is not None:
            self._work.drop()
            self._work = None
        if self._request is not None:
            self._broker.purgatory.cancel(self._request)
        self._release()

    def _attempt(self, expired: bool) -> bool:
        """Read again, unless it reads; it is for the reading to say that the request waits no longer."""
        self._expired = self._expired or expired
        if self._reads:
            self._again = True
        else:
            self._reads = True
            self._work = self._broker.admission.slices.run(self._read(), self._ended)
        return False

    def _ended(self, error: Exception | None) -> None:
        self._work = None
        if error is not None:
            _LOG.error("waiting request given up by a bug", exc_info=error)
            give_up = self._give_up
            self.cancel()
            give_up()

    def _read(self) -> Steps:
        """Answer if there is enough to send, or if the time is over; otherwise wait."""
        fetch, request = self._fetch, self._request
        while True:
            self._again = False
            self._unwatch()
            fetch.begin()
            if request is not None:
                request.missing_bytes = fetch.enough
            topics: list[Results] = []
            try:
                yield from self._read_all(topics)
                if request is not None and fetch.led and not (fetch.urgent or self._expired or fetch.found >= fetch.enough):
                    missing = yield from self._missing()
                    grown = fetch.enough - request.missing_bytes
                    if missing > grown and not (self._again or self._expired):
                        request.missing_bytes = missing - grown
                        self._reads = False
                        return
                    is_enough = fetch.found and missing <= 0
                    if (grown or self._again) and not (is_enough or self._expired):
                        continue
                session_id, answered = yield from fetch.settle(topics)
                for each in answered:
                    fetch.count(each)
                    yield None
                throttle_ms = fetch.throttle_ms()
                found, leaders = fetch.with_leaders(answered)
                parts = yield from encode_fetch_response_in_steps(
                    fetch.version, fetch.correlation_id, throttle_ms, 0, session_id, found, leaders
                )
                topics = []
            finally:
                release_ranges(topics)
            if request is not None:
                self._broker.purgatory.cancel(request)
            fetch.answered(throttle_ms)
            self._answer(parts)
            fetch.release()
            return

    def _unwatch(self) -> None:
        """It has read nothing that could change."""
        if self._request is not None:
            for partition in self._fetch.led:
                partition.watchers.pop(self._request, None)

    def _read_all(self, topics: list[Results]) -> Steps:
        """As `Fetch.read`, in steps; each partition is watched from then on."""
        fetch, request, monotonic = self._fetch, self._request, self._broker.clock.monotonic
        left_s = READING_S
        for topic, wanted in fetch.frame.topics:
            results: list[FetchPartitionResult] = []
            topics.append((topic, results))
            for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
                before, begun = len(fetch.led), monotonic()
                fetch.read_until = begun + left_s
                results += fetch.read_some(topic, wanted[start : start + PARTITIONS_AT_ONCE])
                left_s -= monotonic() - begun
                if request is not None:
                    for partition in fetch.led[before:]:
                        partition.watchers[request] = None
                yield None

    def _missing(self) -> Generator[Pause, None, int]:
        """As `Fetch.missing_bytes`, in steps."""
        fetch, available = self._fetch, 0
        try:
            for topic, wanted in fetch.frame.topics:
                for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
                    available += fetch.available_in(topic, wanted[start : start + PARTITIONS_AT_ONCE])
                    yield None
        except StorageError:  # the next read reports it
            return 0
        return fetch.enough - max(fetch.found, available)


def _each_once(request: FetchFrame) -> Generator[Pause, None, FetchFrame]:
    """The request with each partition once, as it is named last; as Kafka, which puts them into a map. What it forgets is forgotten."""
    topics: dict[bytes, dict[int, FetchFramePartition]] = {}
    for topic, wanted in request.topics:
        partitions = topics.setdefault(topic, {})
        for start in range(0, len(wanted), NAMED_AT_ONCE):
            partitions.update((each.partition, each) for each in wanted[start : start + NAMED_AT_ONCE])
            yield None
    return request._replace(topics=[(topic, list(partitions.values())) for topic, partitions in topics.items()], forgotten=[])


def _nothing(parts: Sequence[Part] = ()) -> None:
    """For a fetch without a request that waits for its answer."""
    release_parts(parts)
