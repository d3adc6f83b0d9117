"""A Produce request of many partitions, or of several long batches, in steps: decoded, staged and written, and answered piece by piece.

The request keeps its frame, whose bytes count in `RequestMemory` until the end. A few batches are staged, written and shown to waiting
fetches in one step, so nothing stays staged between two; the rest is as for any Produce request. It is carried out to its end also when its
connection is lost, as any request that has come whole: no step may be the last. Only acknowledgements by other brokers are not waited for
then.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce.operation import ProduceOperation, ProducePart, TopicResults
from moldau.broker.replicas.appends import ACKS_NONE
from moldau.broker.replicas.partition import ACKS_ALL
from moldau.model.errors import ProtocolError
from moldau.model.steps import UNFINISHED, Pause, Suspension
from moldau.protocol.fast.produce import ProducePartitionResult, decode_produce_in_steps, encode_produce_response_in_steps

if TYPE_CHECKING:
    from moldau.broker.handlers.produce.operation import Services
    from moldau.broker.replicas.appends import PendingAppend
    from moldau.broker.request import RequestSource
    from moldau.protocol.fast.produce import ProduceFrame

BYTES_AT_ONCE = 4 * 1024 * 1024
"""Bytes of several batches that are written in one go: one to ten milliseconds."""
BATCHES_AT_ONCE = 32
"""Batches of a step: one or two milliseconds. A step ends also with `BYTES_AT_ONCE`."""

RESULTS_AT_ONCE = 500
"""Results that are made in one step."""

Batches = list[tuple[int, memoryview | None]]


class _Acknowledgements:
    """Those that a request waits for; a `DelayedOperation`. It refers to nothing of the request while nothing waits."""

    __slots__ = ("_appends", "_is_abandoned", "_left", "_resume")

    def __init__(self) -> None:
        self._appends: list[PendingAppend] = []
        """Those with acks all: the others end by themselves."""
        self._is_abandoned = False
        self._left = 1
        """Appends that are not acknowledged yet, and one until the last was written."""
        self._resume: Callable[[], object] = _nothing

    def begin(self) -> None:
        """There is one more append to wait for, which ends with `end`."""
        self._left += 1

    def written(self, append: "PendingAppend") -> None:
        """An append is written; it may wait at its gates by now."""
        if append.acks == ACKS_ALL:
            if self._is_abandoned:
                self._abandon(append)
            else:
                self._appends.append(append)

    def end(self) -> None:
        """An append is acknowledged, or the last is written."""
        self._left -= 1
        if self._left == 0:
            resume, self._resume = self._resume, _nothing  # it refers to the work that waits
            resume()

    def wait(self, resume: Callable[[], object]) -> None:
        """Call `resume` once all that was written is acknowledged."""
        self._resume = resume
        self.end()

    def finish(self) -> None:
        """The broker stops: acknowledgements come as soon as they may, and no sooner."""

    def cancel(self) -> None:
        """The connection is lost: no append with acks all is waited for, and their batches leave their gates early."""
        self._is_abandoned = True
        appends, self._appends = self._appends, []
        for append in appends:
            self._abandon(append)

    def _abandon(self, append: "PendingAppend") -> None:
        if append.left:
            append.cancel()
            self.end()


class LongProduce:
    """One request."""

    def __init__(
        self,
        broker: "Services",
        source: "RequestSource",
        frame: memoryview,
        body: int,
        version: int,
        correlation_id: int,
        count: Callable[[], int],
    ) -> None:
        """`frame` is kept (`framing.kept`), and counts for the connection `source` from now on; its body starts at `body`. `count` counts
        the request when it is answered, and gives the milliseconds for which the client is muted.
        """
        self._broker = broker
        self._source = source
        self._long = broker.admission.long_data_request(source, len(frame))
        self._frame = frame
        self._body = body
        self._version = version
        self._correlation_id = correlation_id
        self._count = count
        self.operation: ProduceOperation
        """Once it is decoded."""
        self.acknowledgements = _Acknowledgements()
        """To be cancelled when the connection is lost."""

    def steps(self) -> Generator[Pause, None, bytes]:
        """Carry it out; the answer as a frame, nothing with acks 0. ProtocolError, also for acks 0 where a batch was not taken."""
        try:
            request = yield from self._long.decoded(self._decode)
            self._long.keep(len(request.topics) + sum(len(partitions) for _, partitions in request.topics))
            if request.mirror is not None or request.transactional_id is None:
                yield from self._append(request)
            else:
                yield from self._append_transactional(request)
            operation = self.operation
            if operation.acks == ACKS_NONE:
                reason = operation.first_error
                if reason is not None:
                    yield from self._results()
                    self._count()
                    raise ProtocolError(f"produce with acks 0 failed: {reason}")
                self._count()
                return b""
            yield Suspension(self.acknowledgements.wait)
            results, leaders = operation.with_leaders((yield from self._results()))
            throttle_ms = self._count()
            return (yield from encode_produce_response_in_steps(self._version, self._correlation_id, results, throttle_ms, leaders))
        finally:
            del self._frame
            self._long.end()

    def _decode(self, elements_max: int) -> "Generator[Pause, None, ProduceFrame]":
        return decode_produce_in_steps(
            self._frame, self._body, self._version, self._broker.admission.limits.decoded_bytes_max, elements_max
        )

    def _append(self, request: "ProduceFrame") -> Generator[Pause, None, None]:
        broker = self._broker
        kind = ProduceOperation
        if request.mirror is not None:
            from moldau.broker.handlers.produce.mirrored import MirrorProduce

            kind = MirrorProduce
        operation = self.operation = kind(broker, self._source.channel, request, self._version, self._correlation_id, is_kept=True)
        for topic, partitions in request.topics:
            parts: list[ProducePart] = []
            operation.topics.append((topic, parts))
            for some in _pieces(partitions):
                now_ms = broker.clock.time_ms()
                made = [operation.prepare_part(topic, index, records, now_ms) for index, records in some]
                parts += made
                walked = [part for part in made if part.walk is not None]
                if walked:
                    yield Suspension(partial(broker.batch_walks.run, self._source, walked))
                self._write([part for part in made if operation.may_append(topic, part)])
                yield UNFINISHED

    def _append_transactional(self, request: "ProduceFrame") -> Generator[Pause, None, None]:
        from moldau.broker.handlers.produce.transactional import TransactionalProduce

        broker = self._broker
        operation = self.operation = produce = TransactionalProduce(
            broker, self._source.channel, request, self._version, self._correlation_id, is_kept=True
        )
        for topic, partitions in request.topics:
            parts: list[ProducePart] = []
            operation.topics.append((topic, parts))
            for index, records in partitions:
                parts.append(operation.prepare_part(topic, index, records, broker.clock.time_ms()))
                yield UNFINISHED
        walked = [part for part in operation.parts() if part.walk is not None]
        for start in range(0, len(walked), BATCHES_AT_ONCE):
            yield Suspension(partial(broker.batch_walks.run, self._source, walked[start : start + BATCHES_AT_ONCE]))
        yield from produce.begin(broker.clock.time_ms())
        if produce.has_to_ask:
            yield Suspension(lambda resume: produce.ask(resume) and resume())
        some: list[ProducePart] = []
        size = 0
        for topic, parts in operation.topics:
            for part in parts:
                if operation.may_append(topic, part):
                    some.append(part)
                    size += len(part.records)
                if len(some) == BATCHES_AT_ONCE or size >= BYTES_AT_ONCE:
                    self._write(some)
                    some, size = [], 0
                yield UNFINISHED
        self._write(some)

    def _write(self, batches: Sequence[ProducePart]) -> None:
        """Append and write batches in one step."""
        if batches:
            acknowledgements = self.acknowledgements
            acknowledgements.begin()
            append = self.operation.append_some(batches, self._broker.clock.time_ms(), acknowledgements.end)
            self._broker.replicas.write_staged()
            acknowledgements.written(append)

    def _results(self) -> Generator[Pause, None, TopicResults]:
        found = []
        for topic, parts in self.operation.topics:
            results: list[ProducePartitionResult] = []
            found.append((topic, results))
            for start in range(0, len(parts), RESULTS_AT_ONCE):
                made = [part.result() for part in parts[start : start + RESULTS_AT_ONCE]]
                self.operation.count_errors(topic, made)
                results += made
                yield None
        return found


def _pieces(partitions: Batches) -> Iterator[Batches]:
    """`partitions` in pieces, each of which is written in one go."""
    start = size = 0
    for stop, (_, records) in enumerate(partitions, 1):
        size += 0 if records is None else len(records)
        if stop - start == BATCHES_AT_ONCE or size >= BYTES_AT_ONCE:
            yield partitions[start:stop]
            start, size = stop, 0
    if start < len(partitions):
        yield partitions[start:]


def _nothing() -> None:
    """For a request that does not wait."""
