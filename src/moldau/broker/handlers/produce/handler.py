"""The Produce requests of one connection that do not go the shortest way: decoded, their batches appended, answered when these are
acknowledged.

A request that waits for the transaction coordinator holds the frames after it: the order of a producer's batches is that of its requests.
So do one with a batch that has to be checked on another thread, and one of many partitions (`long`). It is completed by itself, also when
the connection has no room for more.
"""

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

from moldau.broker.handlers.produce.fast_path import ProduceFastPath
from moldau.broker.handlers.produce.operation import FIRST_VERSION, ProduceOperation
from moldau.broker.replicas.appends import ACKS_NONE
from moldau.broker.replicas.partition import ACKS_ALL
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.steps import Steps, drain
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.cursor import produce_body
from moldau.protocol.fast.produce import LongProduceError, decode_produce, encode_produce_response
from moldau.protocol.framing import kept

if TYPE_CHECKING:
    from moldau.broker.handlers.produce.operation import Services
    from moldau.broker.handlers.produce.transactional import TransactionalProduce
    from moldau.broker.handlers.produce.walks import RunningWalks
    from moldau.broker.request import Exchange, FastPath

BYTES_AT_ONCE = 4 * 1024 * 1024
"""Bytes of a request of several batches that is handled in one go."""
PATHS_MAX = 256
"""Partitions that a connection produces to the shortest way."""
PATHS_KEPT_MAX = 16_384
"""Of all connections, about a kilobyte each. Beyond, a connection has the one that it used last."""


class _Work:
    """One request: its exchange, its place, its times."""

    __slots__ = ("_broker", "_received_s", "_size", "_started_s", "exchange", "is_cut")

    def __init__(self, broker: "Services", exchange: "Exchange", received_s: float, size: int) -> None:
        """The request has `size` bytes."""
        self.exchange = exchange
        self.is_cut = False
        """Whether the connection is cut for it already."""
        self._broker = broker
        self._received_s = received_s
        self._started_s = broker.clock.monotonic()
        self._size = size

    def take_place(self) -> None:
        """Give its response a place after all before it."""
        self.exchange.take_place(self._size)

    def acknowledged(self, operation: ProduceOperation) -> None:
        """All its batches are acknowledged, or have failed."""
        try:
            throttle_ms = self.count()
            if operation.acks != ACKS_NONE:
                results, leaders = operation.with_leaders(operation.counted_results())
                answer = encode_produce_response(operation.version, operation.correlation_id, results, throttle_ms, leaders)
                self.exchange.reply((answer,))
            elif (reason := operation.first_error) is not None:
                operation.counted_results()
                if not self.is_cut:
                    self.exchange.cut(f"produce with acks 0 failed: {reason}")
        except Exception:
            self.exchange.abort()
            raise

    def count(self) -> int:
        """Count the request, which is answered now; the milliseconds for which the connection is muted."""
        broker, source = self._broker, self.exchange.holder
        broker.counters.produce.add(self._received_s, self._started_s, broker.clock.monotonic())
        throttle_ms = broker.pipeline.quotas.throttle_ms(source.channel, ApiKey.PRODUCE, 1)
        if throttle_ms:
            source.mute(throttle_ms)
        return throttle_ms


class ProduceHandler:
    """See the module."""

    __slots__ = ("_broker", "_paths", "_walks")

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        self._paths: dict[bytes, ProduceFastPath] = {}
        """The shortest ways of the partitions that the connection produces to in turn, by their prefixes; all of one permit epoch, so that
        none keeps the log of a partition that has long been deleted.
        """
        self._walks: RunningWalks | None = None

    def handle(
        self,
        exchange: "Exchange",
        fast: "FastPath | None",
        frame: memoryview,
        version: int,
        correlation_id: int,
        now_ms: int,
        received_s: float,
    ) -> None:
        """Append the batches of a request that was received at `received_s`, and see to its response. ProtocolError.

        `exchange` has no place among the responses yet; `fast` may have rows, whose place is before it.
        """
        broker, limits = self._broker, self._broker.admission.limits
        if fast is not None:
            if fast.rows:
                fast.reserve()
            other = self._paths.get(fast.prefix_of(frame))
            if other is not None and other.version == version and other.stage(frame, correlation_id, now_ms):
                exchange.remember(other)
                return
        work = _Work(broker, exchange, received_s, len(frame))
        body = produce_body(frame, version, limits.decoded_bytes_max)
        if version < FIRST_VERSION:
            from moldau.broker.handlers.produce.old import refuse_old_produce

            answer = refuse_old_produce(frame, body, version, correlation_id, limits.decoded_bytes_max, limits.decoded_elements_max)
            broker.counters.answered(ApiKey.PRODUCE, received_s, broker.clock.monotonic(), (ErrorCode.UNSUPPORTED_VERSION,))
            if answer is not None:
                work.take_place()
                exchange.reply((answer,))
            return
        try:
            request = decode_produce(frame, body, version, limits.decoded_bytes_max, limits.decoded_elements_max)
            if len(frame) > BYTES_AT_ONCE and sum(len(partitions) for _, partitions in request.topics) > 1:
                raise LongProduceError
        except LongProduceError:
            self._handle_long(work, frame, body, version, correlation_id)
            return
        operation: ProduceOperation
        if request.mirror is not None:
            from moldau.broker.handlers.produce.mirrored import MirrorProduce

            operation = MirrorProduce(broker, exchange.holder.channel, request, version, correlation_id)
        elif request.transactional_id is None:
            operation = ProduceOperation(broker, exchange.holder.channel, request, version, correlation_id)
        else:
            from moldau.broker.handlers.produce.transactional import TransactionalProduce

            operation = TransactionalProduce(broker, exchange.holder.channel, request, version, correlation_id)
        operation.prepare(request, now_ms)
        if operation.held:
            self._walk(work, operation)
        elif self._begin(work, operation, now_ms):
            path = ProduceFastPath.of(broker, exchange.holder, frame, body, operation)
            exchange.remember(path)
            if path is not None:
                self._keep(path)

    def _keep(self, path: ProduceFastPath) -> None:
        paths, appends = self._paths, self._broker.replicas.appends
        if len(paths) >= PATHS_MAX or any(each.epoch != path.epoch for each in islice(paths.values(), 1)):
            self._forget_paths()
        if path.prefix not in paths:
            if appends.paths_kept >= PATHS_KEPT_MAX:
                return
            appends.paths_kept += 1
        paths[path.prefix] = path

    def _forget_paths(self) -> None:
        self._broker.replicas.appends.paths_kept -= len(self._paths)
        self._paths.clear()

    def give_up(self) -> None:
        """The connection is lost: what its request still waited for is dropped by `release`."""
        self._forget_paths()  # they refer to the connection
        if self._walks is not None:
            self._walks.drop()

    def _handle_long(self, work: "_Work", frame: memoryview, body: int, version: int, correlation_id: int) -> None:
        """Handle a request of many partitions in turns, and hold the frames after it."""
        from moldau.broker.handlers.produce.long import LongProduce

        exchange = work.exchange
        produce = LongProduce(self._broker, exchange.holder, kept(frame), body, version, correlation_id, work.count)
        work.take_place()
        exchange.delay(produce.acknowledgements)

        def steps() -> Steps:
            answer = yield from produce.steps()
            exchange.reply((answer,) if answer else ())

        try:
            exchange.run(steps(), droppable=False)
        except ProtocolError:
            exchange.withdraw()
            raise

    def _walk(self, work: "_Work", operation: ProduceOperation) -> None:
        """Have batches checked on another thread, and hold the frames after their request."""
        exchange = work.exchange
        exchange.hold()
        if operation.acks != ACKS_NONE:
            work.take_place()
        self._walks = self._broker.batch_walks.run(
            exchange.holder, operation.held, lambda: exchange.resume(lambda: self._walked(work, operation))
        )

    def _walked(self, work: "_Work", operation: ProduceOperation) -> None:
        self._walks = None
        self._begin(work, operation, self._broker.clock.time_ms())

    def _begin(self, work: "_Work", operation: ProduceOperation, now_ms: int) -> bool:
        """Append, or ask the transaction coordinator first; whether all batches are staged. ProtocolError."""
        if operation.transactional_id is not None:
            produce = cast("TransactionalProduce", operation)
            drain(produce.begin(now_ms))
            if produce.has_to_ask and not self._ask(work, produce):
                return False
        return self._append(work, operation, now_ms)

    def _ask(self, work: "_Work", produce: "TransactionalProduce") -> bool:
        """Ask the transaction coordinator; whether it has answered at once. If not, the request waits for it."""
        memory, size, exchange = self._broker.admission.memory, 0, work.exchange

        def answered() -> None:
            memory.finish(exchange.holder, size)
            exchange.resume(lambda: self._append(work, produce, self._broker.clock.time_ms()))

        if produce.ask(answered):
            return True
        size = produce.batch_bytes
        memory.keep(exchange.holder, size)
        exchange.hold()
        if produce.acks != ACKS_NONE:
            work.take_place()
        return False

    def _append(self, work: "_Work", operation: ProduceOperation, now_ms: int) -> bool:
        """Whether all batches are staged. ProtocolError."""
        if operation.acks != ACKS_NONE:
            work.take_place()
        pending = operation.append(now_ms, partial(work.acknowledged, operation))
        if operation.acks == ACKS_ALL:  # other waits end by themselves
            work.exchange.delay(pending)
        reason = operation.first_error
        if operation.acks == ACKS_NONE and reason is not None:
            work.is_cut = True
            raise ProtocolError(f"produce with acks 0 failed: {reason}")
        return reason is None
