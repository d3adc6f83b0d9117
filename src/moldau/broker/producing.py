"""The Produce requests of one connection that do not go the shortest way: decoded, their batches staged, their answers put in their place.

A request that waits for the transaction coordinator holds the frames after it: the order of a producer's batches is that of its requests.
So do one with a batch that has to be checked on another thread, and one of many partitions (`long_produce`). It is completed by itself,
also when the connection has no room for more.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.api.catalog import UnservedError
from moldau.broker.handlers.produce import ACKS_NONE, FIRST_VERSION, FIRST_WITH_TOPIC_IDS, LAST_VERSION, ProduceOutcome, handle_produce
from moldau.broker.network.responses import PendingResponse, ResponseQueue
from moldau.broker.pending_produce import PendingProduce
from moldau.broker.repeated_produce import RepeatedProduce
from moldau.broker.unwritten import NO_PLACE, UnwrittenAnswers
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.steps import Steps, drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.cursor import produce_body
from moldau.protocol.fast.produce import LongProduceError
from moldau.protocol.framing import kept

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.handlers.transactional_produce import TransactionalProduce
    from moldau.broker.walked_batches import RunningWalks
_PRODUCE = int(ApiKey.PRODUCE)


class Producing:
    """See the module."""

    __slots__ = ("_broker", "_received_s", "_responses", "_started_s", "_unwritten", "_walks", "_write")

    def __init__(self, broker: "Broker", responses: ResponseQueue, unwritten: UnwrittenAnswers, write: Callable[[], object]) -> None:
        """`write` writes what is staged."""
        self._broker = broker
        self._responses = responses
        self._unwritten = unwritten
        self._write = write
        self._walks: RunningWalks | None = None
        self._received_s = self._started_s = 0.0

    def handle(
        self, exchange: PendingResponse, frame: memoryview, version: int, correlation_id: int, now_ms: int, received_s: float
    ) -> None:
        """Stage the batches of a request that was received at `received_s`, and answer it or see to its answer. ProtocolError.

        `exchange` has no place among the responses yet: most requests need none but the next one in `ResponseQueue.ready`.
        """
        broker = self._broker
        self._received_s, self._started_s = received_s, broker.clock.monotonic()
        if not 0 <= version <= LAST_VERSION:
            raise UnservedError(_PRODUCE, version)
        body = produce_body(frame, version, broker.admission.limits.decoded_bytes_max)
        if version < FIRST_VERSION:
            from moldau.broker.handlers.old_produce import refuse_old_produce

            answer = refuse_old_produce(
                frame,
                body,
                version,
                correlation_id,
                broker.admission.limits.decoded_bytes_max,
                broker.admission.limits.decoded_elements_max,
            )
            broker.counters.answered(ApiKey.PRODUCE, received_s, self._started_s, (ErrorCode.UNSUPPORTED_VERSION,))
            if answer is not None:
                self._responses.place([answer], exchange.holder)
            return
        try:
            handled = handle_produce(broker, frame, body, version, correlation_id, now_ms)
        except LongProduceError:
            self._handle_long(exchange, frame, body, version, correlation_id)
            return
        if handled.held:
            self._walk(exchange, handled, len(frame))
            return
        outcome = handled if isinstance(handled, ProduceOutcome) else self._ask(exchange, handled, len(frame), now_ms)
        if outcome is not None:
            exchange.remember(RepeatedProduce.of(frame, body, outcome))
            self._place(exchange, outcome)

    def give_up(self) -> None:
        """The connection is lost: what its request still waited for is dropped by `release`."""
        if self._walks is not None:
            self._walks.drop()

    def _handle_long(self, exchange: PendingResponse, frame: memoryview, body: int, version: int, correlation_id: int) -> None:
        """Handle a request of many partitions in turns, and hold the frames after it."""
        from moldau.broker.long_produce import LongProduce

        if self._unwritten.entries:  # its steps write, and do not learn which entries of a failed write were ours
            self._write()
        produce = LongProduce(self._broker, exchange.holder, kept(frame), body, version, correlation_id)
        self._responses.append(exchange, len(frame))

        def steps() -> Steps:
            answer = yield from produce.steps()
            self._count(produce.outcome)
            exchange.reply((answer,) if answer else ())

        try:
            exchange.run(steps(), droppable=False)
        except ProtocolError:
            self._responses.pending.remove(exchange)
            raise
        finally:
            self._responses.collect()

    def _walk(self, exchange: PendingResponse, produce: "ProduceOutcome | TransactionalProduce", cost: int) -> None:
        """Have batches checked on another thread, and hold the frames after their request."""
        exchange.hold()
        if produce.acks != ACKS_NONE:
            self._responses.append(exchange, cost)
        if isinstance(produce, ProduceOutcome):  # what it has staged already is written before the rest
            self._unwritten.add(NO_PLACE if produce.acks == ACKS_NONE else exchange, produce)
        self._walks = self._broker.batch_walks.run(
            exchange.holder, produce.held, lambda: exchange.resume(lambda: self._walked(exchange, produce, cost))
        )

    def _walked(self, exchange: PendingResponse, produce: "ProduceOutcome | TransactionalProduce", cost: int) -> None:
        self._walks = None
        now_ms = self._broker.clock.time_ms()
        if isinstance(produce, ProduceOutcome):
            produce.finish(self._broker, now_ms)
            self._place(exchange, produce)
            return
        drain(produce.begin(now_ms))
        outcome = self._ask(exchange, produce, cost, now_ms) if produce.has_to_ask else produce.outcome(now_ms)
        if outcome is not None:
            self._place(exchange, outcome)

    def _ask(self, exchange: PendingResponse, produce: "TransactionalProduce", cost: int, now_ms: int) -> ProduceOutcome | None:
        """Ask the transaction coordinator; the outcome if it has answered at once. The request may have its place already."""
        if self._unwritten.entries:  # the coordinator writes too, and it is not told of what was ours in a write that fails
            self._write()
        memory, size = self._broker.request_memory, 0

        def answered() -> None:
            memory.finish(exchange.holder, size)
            exchange.resume(lambda: self._complete(exchange, produce))

        if produce.ask(answered):
            return produce.outcome(now_ms)
        size = produce.batch_bytes
        memory.keep(exchange.holder, size)
        exchange.hold()
        if produce.acks != ACKS_NONE and not exchange.is_placed:
            self._responses.append(exchange, cost)
        return None

    def _complete(self, exchange: PendingResponse, produce: "TransactionalProduce") -> None:
        """The transaction coordinator has answered."""
        self._place(exchange, produce.outcome(self._broker.clock.time_ms()))

    def _place(self, exchange: PendingResponse, outcome: ProduceOutcome) -> None:
        """Put the answer to a request where it belongs: where it has its place already, or after all before it. ProtocolError."""
        unwritten, responses = self._unwritten, self._responses
        place: int | PendingResponse = NO_PLACE
        if outcome.acks == ACKS_NONE:
            if outcome.unflushed:
                unwritten.pending.append(PendingProduce(self._broker, outcome, _nothing))
        elif not exchange.is_placed and not responses.pending and not outcome.unflushed:
            place = len(responses.ready)
            responses.place([outcome.encode()], exchange.holder)
        else:
            place = exchange if exchange.is_placed else responses.append(exchange)
            if outcome.unflushed:
                unwritten.pending.append(PendingProduce(self._broker, outcome, lambda: exchange.reply((outcome.encode(),))))
            else:
                responses.fill(exchange, (outcome.encode(),))
        unwritten.add(place, outcome)
        self._count(outcome)
        if outcome.acks == ACKS_NONE and outcome.first_error is not None:
            raise ProtocolError(f"produce with acks 0 failed: {outcome.first_error}")

    def _count(self, outcome: ProduceOutcome) -> None:
        """Count an answered request with its errors. The time that it waits for the disk is not in."""
        broker = self._broker
        broker.counters.produced(1, self._received_s, self._started_s)
        if outcome.first_error is not None:
            for topic, results in outcome.topics:
                traffic = broker.partitions.traffic_of(topic, by_id=outcome.version >= FIRST_WITH_TOPIC_IDS)
                broker.counters.refused(traffic, results)


def _nothing() -> None:
    """For work without an outcome to report."""
