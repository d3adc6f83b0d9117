"""One client's connection: frames in, answers out in the order of their requests.

How a read goes:

1. Every whole frame of the read is handled, one after the other. Produce and Fetch go their own short way, the rest through `dispatch`.
2. Batches are only staged by then. Before any request other than Produce, and at the end of the read, they are written: one write for
   each log. Answers that had counted on a write which failed are put right before they leave. The staged views lie in the receive buffer,
   so this happens before anything else may be received.
3. Fetches of other connections that waited for the new records are completed, and what is answered so far leaves with one send.

Answers that come later (a fetch that waits, an append that waits for its sync) hold their place in `_slots`; what is answered behind them
waits there too. Rules that hold here:

* While `_slots` is empty, answers gather in `_out`; otherwise the first slot is one that has no answer yet.
* Bounds: with `requests_max` slots, or `queued_bytes_max` bytes of answers that the peer has not taken, the connection stops reading, in
  the middle of a read if it must, and goes on once it is below both.
* Another connection's progress never runs our frames: going on is left to the clock, so calls do not nest.
* Failures: a request that breaks the protocol ends the connection after the answers before it, with one line in the log; a bug of ours
  ends it too, with the traceback. Neither touches another connection, and no batch stays staged.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.broker.dispatch import HEAD_SIZE, UnservedError, dispatch, unpack_head
from moldau.broker.handlers.fetch import WaitingFetch, handle_fetch
from moldau.broker.handlers.old_produce import refuse_old_produce
from moldau.broker.handlers.produce import ACKS_NONE, ProduceOutcome, handle_produce
from moldau.broker.handlers.produce import FIRST_VERSION as PRODUCE_FIRST
from moldau.broker.handlers.produce import LAST_VERSION as PRODUCE_LAST
from moldau.broker.partition import Partition
from moldau.broker.pending_produce import PendingProduce
from moldau.broker.repeated_produce import RepeatedProduce
from moldau.model.errors import ProtocolError, StorageError
from moldau.ports.transport import FileRange, Part, Transport
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.framing import FrameReader
from moldau.protocol.headers import decode_request_header
from moldau.protocol.versions import CODEC

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

_LOG = logging.getLogger(__name__)

RANGE_COST = 512
"""What a file range counts among the bytes that wait; its own bytes stay in the file."""
_PRODUCE = int(ApiKey.PRODUCE)
_FETCH = int(ApiKey.FETCH)
_FETCH_VERSIONS = CODEC[ApiKey.FETCH]


class Slot:
    """The place of an answer among those of its connection."""

    __slots__ = ("cost", "delayed", "parts")

    def __init__(self) -> None:
        self.parts: Sequence[Part] | None = None
        """The answer, once it is there. Empty for a request that gets none."""
        self.cost = 0
        self.delayed: WaitingFetch | None = None


class Connection:
    """A :class:`moldau.ports.transport.Receiver`."""

    __slots__ = (
        "_advertised",
        "_broker",
        "_closed",
        "_going_on",
        "_out",
        "_out_cost",
        "_paused",
        "_pending",
        "_reader",
        "_repeated",
        "_serving",
        "_slot_cost",
        "_slots",
        "_stopping",
        "_transport",
        "_unwritten",
    )

    def __init__(self, broker: "Broker", transport: Transport) -> None:
        self._broker = broker
        self._transport = transport
        self._advertised = broker.advertised_to(transport.local)
        self._reader = FrameReader(broker.receive_buffer, broker.request_bytes_max)
        self._repeated: RepeatedProduce | None = None
        self._out: list[Part] = []
        self._out_cost = 0
        """Bytes in `_out`; answers of Produce are left out, they are shorter than their requests."""
        self._slots: deque[Slot] = deque()
        self._slot_cost = 0
        self._unwritten: list[tuple[int | Slot, int, RepeatedProduce | ProduceOutcome]] = []
        """Answers that count on a write: place in `_out` or slot, correlation id, what made it."""
        self._pending: list[PendingProduce] = []
        """Appends of this read that will wait for a sync after the write."""
        self._serving = False
        """Whether frames are being handled: what is answered meanwhile leaves at the end."""
        self._paused = False
        self._going_on = False
        self._stopping = False
        """No more requests are taken; the connection closes when the last answer has left."""
        self._closed = False

    # What the transport calls

    def get_buffer(self, size_hint: int) -> memoryview:
        """Room for the next bytes."""
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        """Handle what has come."""
        self._reader.updated(count)
        try:
            self._serve()
        except Exception:
            self._abort_for_a_bug()

    def queue_drained(self) -> None:
        """The peer has taken everything."""
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        """Give up what still waits."""
        self._closed = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.delayed is not None:
                slot.delayed.cancel()
            _release(slot.parts or ())
        _release(self._out)
        self._out = []
        self._broker.connections.discard(self)
        if error is not None:
            _LOG.debug("connection lost: peer=%s:%d error=%s", *self._transport.peer, error)

    # What the broker calls

    def finish(self) -> None:
        """Take no more requests, answer waiting fetches with what there is, and close once every answer has left."""
        if self._closed or self._stopping:
            return
        self._stopping = True
        self._transport.pause_reading()
        for slot in list(self._slots):
            if slot.delayed is not None:
                slot.delayed.finish()
        if not self._serving:
            self._flush()

    @property
    def held_bytes(self) -> int:
        """Memory that requests received in part, or not yet handled, take."""
        return self._reader.held_bytes

    # Frames

    def _serve(self) -> None:
        """Handle the frames that are there, as far as the bounds allow; write what they append; send what is answered."""
        self._serving = True
        stopped_early = True
        try:
            stopped_early = self._handle_frames()
        except ProtocolError as error:
            _LOG.warning("connection cut: peer=%s:%d reason=%s", *self._transport.peer, error)
            self.finish()
        except Exception:
            self._abort_for_a_bug()
        self._reader.stash()
        if self._unwritten or self._broker.staged_writes.dirty:
            self._write()
        self._serving = False
        self._flush()
        if not self._paused and not self._stopping and (stopped_early or self._is_full()):
            self._paused = True
            self._transport.pause_reading()
            self._go_on()

    def _abort_for_a_bug(self) -> None:
        _LOG.exception("connection cut by a bug: peer=%s:%d", *self._transport.peer)
        self._serving = False
        self._transport.abort()

    def _handle_frames(self) -> bool:
        """Handle one frame after the other; whether it stopped before the last."""
        broker = self._broker
        staged = broker.staged_writes
        now_ms = broker.clock.time_ms()
        repeated = self._repeated
        unwritten = self._unwritten
        for frame in self._reader.frames():
            if len(frame) < HEAD_SIZE:
                raise ProtocolError(f"frame of {len(frame)} bytes is too short for a request")
            api_key, version, correlation_id = unpack_head(frame)
            if api_key == _PRODUCE:
                if repeated is not None and repeated.version == version:
                    answer = repeated.take(staged, frame, correlation_id, now_ms)
                    if answer is not None:
                        if not answer:  # acks 0
                            unwritten.append((-1, correlation_id, repeated))
                            continue
                        if not self._slots:
                            unwritten.append((len(self._out), correlation_id, repeated))
                            self._out.append(answer)
                            continue
                        unwritten.append((self._hold((answer,)), correlation_id, repeated))
                        if self._is_full():
                            return True
                        continue
                self._produce(frame, version, correlation_id, now_ms)
                repeated = self._repeated
            else:
                if unwritten:
                    self._write()
                if api_key == _FETCH and _FETCH_VERSIONS.includes(version):
                    self._fetch(frame, version, correlation_id)
                else:
                    self._dispatch(frame)
            if self._stopping or self._is_full():
                return True
        return False

    def _produce(self, frame: memoryview, version: int, correlation_id: int, now_ms: int) -> None:
        """A Produce request by the general way."""
        if not 0 <= version <= PRODUCE_LAST:
            raise UnservedError(_PRODUCE, version)
        body = decode_request_header(frame).body_position
        if version < PRODUCE_FIRST:
            answer = refuse_old_produce(frame, body, version, correlation_id)
            if answer is not None:
                self._place([answer])
            return
        outcome = handle_produce(self._broker, frame, body, version, correlation_id, now_ms)
        self._repeated = RepeatedProduce.of(frame, body, outcome)
        if outcome.acks == ACKS_NONE:
            self._unwritten.append((-1, correlation_id, outcome))
            if outcome.unflushed:
                self._pending.append(PendingProduce(self._broker, outcome, None))
            if outcome.first_error is not None:
                raise ProtocolError(f"produce with acks 0 failed: {outcome.first_error}")
        elif outcome.unflushed:
            slot = self._hold(None)
            self._unwritten.append((slot, correlation_id, outcome))
            self._pending.append(PendingProduce(self._broker, outcome, lambda parts: self._answer(slot, parts)))
        elif self._slots:
            self._unwritten.append((self._hold((outcome.encode(),)), correlation_id, outcome))
        else:
            self._unwritten.append((len(self._out), correlation_id, outcome))
            self._place([outcome.encode()])

    def _fetch(self, frame: memoryview, version: int, correlation_id: int) -> None:
        answer = handle_fetch(self._broker, frame, decode_request_header(frame).body_position, version, correlation_id)
        if isinstance(answer, list):
            self._place(answer)
            return
        slot = self._hold(None)
        slot.delayed = answer
        answer.start(lambda parts: self._answer(slot, parts), self._transport.abort)

    def _dispatch(self, frame: memoryview) -> None:
        slot = self._hold(None)
        try:
            dispatch(self._broker, frame, self._transport.peer, self._advertised, lambda parts: self._answer(slot, parts))
        except ProtocolError:
            self._slots.remove(slot)
            raise
        finally:
            self._collect()

    def _write(self) -> None:
        """Write what is staged, correct the answers that counted on a write that failed, complete what waited for the rest."""
        broker = self._broker
        failures = broker.staged_writes.write()
        if failures:
            self._correct(failures)
        self._unwritten.clear()
        if self._pending:
            pending, self._pending = self._pending, []
            for produce in pending:
                produce.start()
        broker.staged_writes.notify()

    def _correct(self, failures: Mapping[Partition, StorageError]) -> None:
        """Take back the answers to what could not be written."""
        for place, correlation_id, source in self._unwritten:
            answer = source.refuse(correlation_id, failures)
            if answer is None:
                continue
            if source.acks == ACKS_NONE:
                _LOG.warning("connection cut: peer=%s:%d reason=produce with acks 0 could not be written", *self._transport.peer)
                self.finish()
            elif isinstance(place, int):
                self._out[place] = answer
            elif place.parts is not None:
                place.parts = (answer,)

    # Answers

    def _place(self, parts: Sequence[Part]) -> None:
        """An answer that is there."""
        if self._slots:
            self._hold(parts)
        else:
            self._out.extend(parts)
            self._out_cost += _cost(parts)

    def _hold(self, parts: Sequence[Part] | None) -> Slot:
        """A place behind all answers so far, for an answer or for what will be one."""
        slot = Slot()
        self._slots.append(slot)
        if parts is not None:
            slot.parts = parts
            slot.cost = _cost(parts)
            self._slot_cost += slot.cost
        return slot

    def _answer(self, slot: Slot, parts: Sequence[Part]) -> None:
        """What `slot` stood for is there."""
        if self._closed:
            _release(parts)
            return
        assert slot.parts is None, "a request was answered twice"
        slot.delayed = None
        slot.parts = parts
        slot.cost = _cost(parts)
        self._slot_cost += slot.cost
        if not self._serving:
            self._flush()
            self._go_on()

    def _collect(self) -> None:
        """Move the answers that nothing waits before from the slots to what is sent next."""
        slots = self._slots
        while slots and (parts := slots[0].parts) is not None:
            cost = slots.popleft().cost
            self._slot_cost -= cost
            self._out_cost += cost
            self._out.extend(parts)

    def _flush(self) -> None:
        """Send what may be sent."""
        if self._closed:
            return
        self._collect()
        if self._out:
            out, self._out = self._out, []
            self._out_cost = 0
            self._transport.send(out)
        if self._stopping and not self._slots:
            self._transport.close()

    # Bounds

    def _is_full(self) -> bool:
        broker = self._broker
        return (
            len(self._slots) >= broker.requests_in_flight_max
            or self._out_cost + self._slot_cost + self._transport.queued_bytes() >= broker.queued_bytes_max
        )

    def _go_on(self) -> None:
        """Read on if there is room again, when the clock's turn comes."""
        if self._paused and not self._going_on and not self._is_full():
            self._going_on = True
            self._broker.clock.call_later(0.0, self._resume)

    def _resume(self) -> None:
        self._going_on = False
        if self._closed or self._stopping or self._is_full():
            return
        self._paused = False
        try:
            self._serve()
        except Exception:
            self._abort_for_a_bug()
        if not self._paused and not self._stopping:
            self._transport.resume_reading()


def _cost(parts: Sequence[Part]) -> int:
    cost = 0
    for part in parts:
        cost += RANGE_COST if isinstance(part, FileRange) else len(part)
    return cost


def _release(parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, FileRange):
            part.release()
