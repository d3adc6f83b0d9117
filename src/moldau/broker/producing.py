"""The Produce requests of one connection that do not go the shortest way: decoded, their batches staged, their answers put in their place.

A request that waits for the transaction coordinator holds the frames after it: the order of a producer's batches is that of its requests.
So do one with a batch that has to be checked on another thread, and one of many partitions (`long_produce`). It is completed by itself,
also when the connection has no room for more.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.answers import Answers, Slot
from moldau.broker.dispatch import UnservedError
from moldau.broker.handlers.produce import ACKS_NONE, FIRST_VERSION, FIRST_WITH_TOPIC_IDS, LAST_VERSION, ProduceOutcome, handle_produce
from moldau.broker.pending_produce import PendingProduce
from moldau.broker.repeated_produce import RepeatedProduce
from moldau.broker.unwritten import NO_PLACE, UnwrittenAnswers
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.steps import Steps, drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.produce import LongProduceError
from moldau.protocol.fast.produce_cursor import produce_body
from moldau.protocol.framing import kept

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.handlers.transactional_produce import TransactionalProduce
    from moldau.broker.request_memory import Holder
    from moldau.broker.walked_batches import RunningWalks
    from moldau.ports.transport import Part

_PRODUCE = int(ApiKey.PRODUCE)


class Producing:
    """See the module. `repeated` is what the next request will probably look like, once there was one of the usual kind."""

    __slots__ = (
        "_answer",
        "_answers",
        "_broker",
        "_hold",
        "_holder",
        "_received_s",
        "_release",
        "_run",
        "_started_s",
        "_unwritten",
        "_walks",
        "_write",
        "repeated",
    )

    def __init__(
        self,
        broker: "Broker",
        holder: "Holder",
        answers: Answers,
        unwritten: UnwrittenAnswers,
        write: Callable[[], object],
        answer: "Callable[[Slot, Sequence[Part]], object]",
        hold: Callable[[], object],
        release: Callable[[Callable[[], object]], object],
        run: Callable[[Steps], object],
    ) -> None:
        """`holder` is the connection, as far as memory matters. `write` writes what is staged; `answer` gives a slot its answer; `hold` and
        `release` are those of the connection, and `run` runs steps in turns, to their end.
        """
        self._broker = broker
        self._holder = holder
        self._answers = answers
        self._unwritten = unwritten
        self._write = write
        self._answer = answer
        self._hold = hold
        self._release = release
        self._run = run
        self._walks: RunningWalks | None = None
        self._received_s = self._started_s = 0.0
        self.repeated: RepeatedProduce | None = None

    def handle(self, frame: memoryview, version: int, correlation_id: int, now_ms: int, received_s: float) -> None:
        """Stage the batches of a request that was received at `received_s`, and answer it or see to its answer. ProtocolError."""
        broker = self._broker
        self._received_s, self._started_s = received_s, broker.clock.monotonic()
        if not 0 <= version <= LAST_VERSION:
            raise UnservedError(_PRODUCE, version)
        body = produce_body(frame, version, broker.decoded_bytes_max)
        if version < FIRST_VERSION:
            from moldau.broker.handlers.old_produce import refuse_old_produce

            answer = refuse_old_produce(frame, body, version, correlation_id, broker.decoded_bytes_max, broker.decoded_elements_max)
            broker.counters.answered(ApiKey.PRODUCE, received_s, self._started_s, (ErrorCode.UNSUPPORTED_VERSION,))
            if answer is not None:
                self._answers.place([answer])
            return
        try:
            handled = handle_produce(broker, frame, body, version, correlation_id, now_ms)
        except LongProduceError:
            self._handle_long(frame, body, version, correlation_id)
            return
        if handled.held:
            self._walk(handled, len(frame))
            return
        outcome = handled if isinstance(handled, ProduceOutcome) else self._ask(handled, len(frame), now_ms, None)
        if outcome is not None:
            self.repeated = RepeatedProduce.of(frame, body, outcome)
            self._place(outcome, None)

    def give_up(self) -> None:
        """The connection is lost: what its request still waited for is dropped by `release`."""
        if self._walks is not None:
            self._walks.drop()

    def _handle_long(self, frame: memoryview, body: int, version: int, correlation_id: int) -> None:
        """Handle a request of many partitions in turns, and hold the frames after it."""
        from moldau.broker.long_produce import LongProduce

        if self._unwritten.entries:  # its steps write, and do not learn which entries of a failed write were ours
            self._write()
        produce = LongProduce(self._broker, self._holder, kept(frame), body, version, correlation_id)
        slot = self._answers.hold(None, len(frame))

        def steps() -> Steps:
            answer = yield from produce.steps()
            self._count(produce.outcome)
            self._answer(slot, (answer,) if answer else ())

        try:
            self._run(steps())
        except ProtocolError:
            self._answers.slots.remove(slot)
            raise
        finally:
            self._answers.collect()

    def _walk(self, produce: "ProduceOutcome | TransactionalProduce", cost: int) -> None:
        """Have batches checked on another thread, and hold the frames after their request."""
        self._hold()
        slot = None if produce.acks == ACKS_NONE else self._answers.hold(None, cost)
        if isinstance(produce, ProduceOutcome):  # what it has staged already is written before the rest
            self._unwritten.add(NO_PLACE if slot is None else slot, produce)
        self._walks = self._broker.batch_walks.run(
            self._holder, produce.held, lambda: self._release(lambda: self._walked(produce, cost, slot))
        )

    def _walked(self, produce: "ProduceOutcome | TransactionalProduce", cost: int, slot: Slot | None) -> None:
        self._walks = None
        now_ms = self._broker.clock.time_ms()
        if isinstance(produce, ProduceOutcome):
            produce.finish(self._broker, now_ms)
            self._place(produce, slot)
            return
        drain(produce.begin(now_ms))
        outcome = self._ask(produce, cost, now_ms, slot) if produce.has_to_ask else produce.outcome(now_ms)
        if outcome is not None:
            self._place(outcome, slot)

    def _ask(self, produce: "TransactionalProduce", cost: int, now_ms: int, slot: Slot | None) -> ProduceOutcome | None:
        """Ask the transaction coordinator; the outcome if it has answered at once. The request may have a `slot` already."""
        if self._unwritten.entries:  # the coordinator writes too, and it is not told of what was ours in a write that fails
            self._write()
        memory, size = self._broker.request_memory, 0

        def answered() -> None:
            memory.finish(self._holder, size)
            self._release(lambda: self._complete(produce, slot))

        if produce.ask(answered):
            return produce.outcome(now_ms)
        size = produce.batch_bytes
        memory.keep(self._holder, size)
        self._hold()
        if slot is None and produce.acks != ACKS_NONE:
            slot = self._answers.hold(None, cost)
        return None

    def _complete(self, produce: "TransactionalProduce", slot: Slot | None) -> None:
        """The transaction coordinator has answered."""
        self._place(produce.outcome(self._broker.clock.time_ms()), slot)

    def _place(self, outcome: ProduceOutcome, slot: Slot | None) -> None:
        """Put the answer to a request where it belongs: into `slot` if it has one already. ProtocolError."""
        unwritten, answers = self._unwritten, self._answers
        place: int | Slot = NO_PLACE
        if outcome.acks == ACKS_NONE:
            if outcome.unflushed:
                unwritten.pending.append(PendingProduce(self._broker, outcome, _nothing))
        elif outcome.unflushed:
            place = waiting = slot or answers.hold(None)
            unwritten.pending.append(PendingProduce(self._broker, outcome, lambda: self._answer(waiting, (outcome.encode(),))))
        elif slot is not None:
            place = slot
            answers.fill(slot, (outcome.encode(),))
        elif answers.slots:
            place = answers.hold((outcome.encode(),))
        else:
            place = len(answers.ready)
            answers.place([outcome.encode()])
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
