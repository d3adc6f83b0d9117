"""A Produce request of many partitions, or of several long batches, in steps: decoded, staged and written, and answered piece by piece.

The request keeps its frame, whose bytes count in `RequestMemory` until the end. A few batches are staged, written and shown to waiting
fetches in one step, so nothing stays staged between two; the rest is as for any Produce request. It is carried out to its end also when its
connection is lost, as any request that has come whole: no step may be the last.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce import ACKS_NONE, BYTES_AT_ONCE, ProduceOutcome, stage
from moldau.broker.pending_produce import PendingProduce
from moldau.model.errors import ProtocolError
from moldau.model.steps import UNFINISHED, Elsewhere, Pause
from moldau.protocol.fast.produce import ProduceFrame, decode_produce_in_steps, encode_produce_response_in_steps

if TYPE_CHECKING:
    from moldau.broker.admission.memory import Holder
    from moldau.broker.broker import Broker

BATCHES_AT_ONCE = 32
"""Batches of a step: one or two milliseconds. A step ends also with `BYTES_AT_ONCE`."""

Batches = list[tuple[int, memoryview | None]]


class LongProduce:
    """One request."""

    def __init__(self, broker: "Broker", holder: "Holder", frame: memoryview, body: int, version: int, correlation_id: int) -> None:
        """`frame` is kept (`framing.kept`), and counts for the connection `holder` from now on; its body starts at `body`."""
        self._broker = broker
        self._holder = holder
        self._long = broker.admission.long_data_request(holder, len(frame))
        self._frame = frame
        self._body = body
        self._version = version
        self._correlation_id = correlation_id
        self._synced = _Synced()
        self.outcome: ProduceOutcome
        """Once it is decoded."""
        self._pending: PendingProduce

    def steps(self) -> Generator[Pause, None, bytes]:
        """Carry it out; the answer as a frame, nothing with acks 0. ProtocolError, also for acks 0 where a batch was not taken."""
        broker = self._broker
        try:
            request = yield from self._long.decoded(self._decode)
            self._long.keep(len(request.topics) + sum(len(partitions) for _, partitions in request.topics))
            self.outcome = ProduceOutcome(self._version, self._correlation_id, request.acks, request.transactional_id)
            self._pending = PendingProduce(broker, self.outcome, self._synced)
            yield from self._stage(request) if request.transactional_id is None else self._stage_transactional(request)
            if request.acks == ACKS_NONE:
                self._pending.start()
                if self.outcome.first_error is not None:
                    raise ProtocolError(f"produce with acks 0 failed: {self.outcome.first_error}")
                return b""
            yield Elsewhere(self._wait_for_syncs)
            return (yield from encode_produce_response_in_steps(self._version, self._correlation_id, self.outcome.topics))
        finally:
            del self._frame  # with acks 0 a sync may still wait for its end
            self._long.end()

    def _decode(self, elements_max: int) -> Generator[Pause, None, ProduceFrame]:
        return decode_produce_in_steps(
            self._frame, self._body, self._version, self._broker.admission.limits.decoded_bytes_max, elements_max
        )

    def _stage(self, request: ProduceFrame) -> Generator[Pause, None, None]:
        broker, outcome = self._broker, self.outcome
        for topic, partitions in request.topics:
            outcome.topics.append((topic, []))
            for some in _pieces(partitions):
                stage(broker, outcome, some, broker.clock.time_ms())
                self._write()
                if outcome.held:
                    yield Elsewhere(partial(broker.batch_walks.run, self._holder, outcome.held))
                    outcome.finish(broker, broker.clock.time_ms())
                    self._write()
                yield UNFINISHED

    def _stage_transactional(self, request: ProduceFrame) -> Generator[Pause, None, None]:
        from moldau.broker.handlers.transactional_produce import TransactionalProduce

        broker = self._broker
        produce = TransactionalProduce(broker, request, self._version, self._correlation_id, is_kept=True)
        yield from produce.prepare(broker.clock.time_ms())
        for start in range(0, len(produce.held), BATCHES_AT_ONCE):
            some = [each for each in produce.held[start : start + BATCHES_AT_ONCE] if each.walk is not None]
            if some:
                yield Elsewhere(partial(broker.batch_walks.run, self._holder, some))
        yield from produce.begin(broker.clock.time_ms())
        if produce.has_to_ask:
            yield Elsewhere(lambda resume: produce.ask(resume) and resume())
        staged = broker.replicas.appends
        for number, _ in enumerate(produce.stage(self.outcome, broker.clock.time_ms()), 1):
            if number % BATCHES_AT_ONCE == 0 or sum(each.staged_bytes for each in staged.dirty) >= BYTES_AT_ONCE:
                self._write()
                yield UNFINISHED
        self._write()

    def _write(self) -> None:
        """Write what this step has staged, and complete the fetches that waited for it."""
        failures = self._broker.replicas.write_staged()
        if failures:
            self.outcome.fail(failures, but_written=True)
        self._pending.written()

    def _wait_for_syncs(self, resume: Callable[[], object]) -> None:
        self._synced.resume = resume
        self._pending.start()


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


class _Synced:
    """Called when all syncs have ended. It does not refer to the request: with acks 0 nothing of that waits for them."""

    __slots__ = ("resume",)

    def __init__(self) -> None:
        self.resume: Callable[[], object] = _nothing

    def __call__(self) -> None:
        resume, self.resume = self.resume, _nothing  # it refers to the work that waits
        resume()


def _nothing() -> None:
    """For work of which no step waits for syncs."""
