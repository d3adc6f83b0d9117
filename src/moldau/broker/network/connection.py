"""One client's connection: frames in, responses out in the order of their requests.

How a read goes:

1. Every whole frame of the read is handled, one after the other. Produce and Fetch go their own short way, the rest through the `pipeline`.
2. Batches are only staged by then, as views of the receive buffer. They are written before any request other than Produce, and before
   anything else is received: one write for each log. Then the Produce requests that wait for no more are answered.
3. Fetches of other connections that waited for the new records are completed, and what is answered so far leaves with one send.

The order is kept by `responses`. Rules that hold here:

* Bounds: beyond `requests_in_flight_max` pending responses, or `queued_bytes_max` bytes that the peer has not taken, nothing is read, in
  the middle of a read if it must be. `admission.memory` bounds what the requests of all connections take before they are handled.
* Another connection's progress never runs our frames: the scheduler of `slices` resumes them, so calls do not nest.
* A request may hold the frames after it (`Exchange.hold`), as Kafka mutes a channel: one that is long runs in turns (`slices`), a Produce
  request may wait for the transaction coordinator, look-ups for another thread. When the connection is lost, sliced work is dropped.
* Failures: a request that breaks the protocol ends the connection after the answers before it, with one line in the log; a bug of ours
  ends it too, with the traceback. Neither touches another connection, and no batch stays staged.
"""

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from moldau.broker.admission.memory import READ_BYTES
from moldau.broker.api.catalog import UnservedError
from moldau.broker.handlers.fetch.handler import FetchHandler
from moldau.broker.handlers.produce.handler import ProduceHandler
from moldau.broker.handlers.produce.operation import LAST_VERSION
from moldau.broker.network.responses import PendingResponse, ResponseQueue
from moldau.broker.request import Request
from moldau.model.errors import ProtocolError
from moldau.model.steps import Steps
from moldau.ports.transport import Part, Transport, release_parts
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.framing import FrameReader, ReceiveBuffer
from moldau.protocol.versions import CODEC

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SlicedWork
    from moldau.broker.api.pipeline import Pipeline
    from moldau.broker.handlers.fetch.call import Services as FetchServices
    from moldau.broker.handlers.produce.operation import Services as ProduceServices
    from moldau.broker.request import FastPath
    from moldau.broker.security import Channel
    from moldau.cluster.snapshot import MetadataCache

_LOG = logging.getLogger(__name__)

unpack_head = Struct(">hhi").unpack_from
"""API key, version and correlation id: what every request begins with."""
HEAD_SIZE = 8
PIPELINED_FREE = 4
"""Requests of one read, other than Produce, that are handled however many there were from others in this turn of the loop."""
_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_FETCH_VERSIONS = CODEC[ApiKey.FETCH]


if TYPE_CHECKING:

    class Services(FetchServices, ProduceServices, Protocol):
        """What a connection uses of the broker, Produce and Fetch included."""

        cache: MetadataCache
        connections: "dict[Connection, None]"
        pipeline: "Pipeline"
        receive_buffer: ReceiveBuffer


class Connection:
    """A :class:`moldau.ports.transport.Receiver`."""

    __slots__ = (
        "_appends",
        "_broker",
        "_closed",
        "_fast",
        "_fetching",
        "_holds",
        "_holds_memory",
        "_memory",
        "_paused",
        "_pipeline",
        "_producing",
        "_reader",
        "_responses",
        "_resume_due",
        "_serving",
        "_stopping",
        "_transport",
        "_work",
        "channel",
        "received_s",
        "started_s",
    )

    def __init__(self, broker: "Services", transport: Transport, channel: "Channel") -> None:
        self._broker = broker
        self._pipeline = broker.pipeline
        self._transport = transport
        self.channel = channel
        self._memory = broker.admission.memory
        self._holds_memory = False
        limits = broker.admission.limits
        self._reader = FrameReader(broker.receive_buffer, limits.request_bytes_max, limits.decoded_bytes_max)
        self._responses = ResponseQueue()
        self._appends = broker.replicas.appends
        self._producing = ProduceHandler(broker)
        self._fetching = FetchHandler(broker)
        self._fast: FastPath | None = None
        """What the next Produce request will probably look like, once there was one of the usual kind."""
        self.received_s = self.started_s = 0.0
        """When the last bytes were received, and when the requests in them began to be handled."""
        self._holds = 0
        """Requests under way that no later frame may overtake."""
        self._work: SlicedWork | None = None
        self._serving = False
        """Whether frames are being handled: what is answered meanwhile leaves at the end."""
        self._paused = False
        self._resume_due = False
        self._stopping = False
        """No more requests are taken; the connection closes when the last answer has left."""
        self._closed = False

    # What the transport calls

    def get_buffer(self, size_hint: int) -> memoryview:
        """Room for the next bytes."""
        room = self._reader.get_buffer()
        memory = self._memory
        return room[:READ_BYTES] if memory.held >= memory.bytes_max and not self._reader.has_room else room

    def buffer_updated(self, count: int) -> None:
        """Handle what has come."""
        self._reader.updated(count)
        self.received_s = self.started_s = self._broker.clock.monotonic()
        try:
            self._serve()
        except Exception as error:
            self._abort_for_a_bug(error)

    def queue_drained(self) -> None:
        """The peer has taken everything."""
        self._resume_later()

    def connection_lost(self, error: Exception | None) -> None:
        """Give up what still waits."""
        self._closed = True
        if self._work is not None:
            self._work.drop()
            self._work = None  # it refers to this connection
        self._responses.give_up()
        self._memory.forget(self)
        self._reader.discard()
        self._broker.connections.pop(self, None)
        self._producing.give_up()
        self._fast = None  # it refers to this connection: both would wait for the garbage collector
        if error is not None:
            _LOG.debug("connection lost: peer=%s:%d error=%s", *self._transport.peer, error)

    # What requests under way call

    def hold(self) -> None:
        """Handle no frame after the present one until `release`, `resume` or the response that holds, once for each call."""
        self._holds += 1

    def release(self) -> None:
        """Handle frames again."""
        self._holds -= 1
        self._resume_later()

    def resume(self, work: Callable[[], object]) -> None:
        """Run the rest of a request that was held, see `Exchange.resume`."""
        self._broker.clock.call_later(0.0, lambda: self._complete(work))

    def remember(self, fast: "FastPath | None") -> None:
        """Try `fast` first for the next Produce requests."""
        self._fast = fast

    def respond(self, pending: PendingResponse, parts: Sequence[Part]) -> None:
        """The response to the request of `pending` is there."""
        if self._closed:
            release_parts(parts)
            return
        self._responses.fill(pending, parts)
        if pending.holds:
            pending.holds = False
            self._holds -= 1
        if not self._serving and not self._appends.completions.flush_later(self.answered):
            self.answered()

    def answered(self) -> None:
        """Send the responses that are there."""
        self._flush()
        self._resume_later()

    def place(self, pending: PendingResponse, waiting_cost: int) -> None:
        """Give a response the place after all before it."""
        self._responses.append(pending, waiting_cost)

    def withdraw(self, pending: PendingResponse) -> None:
        """Forget a response that will not be there."""
        self._responses.remove(pending)

    def run(self, pending: PendingResponse, steps: Steps, *, droppable: bool) -> None:
        """Run a request in turns, see `Exchange.run`."""
        self._work = self._broker.admission.slices.run(steps, lambda error: self._work_ended(pending, error), droppable=droppable)
        if self._work is not None:
            self.hold()

    def mute(self, throttle_ms: int) -> None:
        """Handle no frame for that long."""
        self.hold()
        if not self._serving:  # a late response: no frame is being handled, after which reading would pause
            self._pause()
        self._broker.clock.call_later(throttle_ms / 1000, self.release)

    def reserve(self, requests: int = 1, waiting_cost: int = 0) -> PendingResponse:
        """A place for the responses to so many requests."""
        return self._responses.append(PendingResponse(self), waiting_cost, requests)

    def answer_run(self, requests: int, parts: Sequence[Part]) -> None:
        """Send the responses to requests of this read that went the shortest way of Produce."""
        responses = self._responses
        if responses.pending:
            responses.fill(self.reserve(requests), parts)
        else:
            responses.ready.extend(parts)

    def cut(self, reason: object) -> None:
        """Handle no more frames, and close once the responses so far have left."""
        _LOG.warning("connection cut: peer=%s:%d reason=%s", *self._transport.peer, reason)
        self.finish()

    def abort(self) -> None:
        """Close at once; what is queued is dropped."""
        self._transport.abort()

    # What the broker calls

    def finish(self) -> None:
        """Take no more requests, answer waiting fetches with what there is, and close once every answer has left."""
        if self._closed or self._stopping:
            return
        self._stopping = True
        self._transport.pause_reading()
        for pending in list(self._responses.pending):
            if pending.delayed is not None:
                pending.delayed.finish()
        if not self._serving:
            self._flush()

    def starve(self) -> None:
        """There is no memory for what has been received, and no other request may wait for it any longer: close."""
        _LOG.debug("connection closed, its request is incomplete and there is no memory: peer=%s:%d", *self._transport.peer)
        self._transport.abort()

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
            self.cut(error)
        except Exception as error:
            self._abort_for_a_bug(error)
        reader = self._reader
        held = reader.stash()
        if held or self._holds_memory:
            self._holds_memory = held > 0
            if self._memory.note(self, held, reader.received - reader.pending_bytes, reader.received, has_room=reader.has_room):
                self.hold()
        if self._appends.unwritten or self._appends.dirty:
            self._appends.write_staged()
        self._serving = False
        self._flush()
        if stopped_early or self._is_full():
            self._pause()
            self._resume_later()

    def _abort_for_a_bug(self, error: Exception) -> None:
        _LOG.error("connection cut by a bug: peer=%s:%d", *self._transport.peer, exc_info=error)
        self._serving = False
        self._transport.abort()

    def _handle_frames(self) -> bool:
        """Handle one frame after the other; whether it stopped before the last."""
        broker = self._broker
        now_ms = broker.clock.time_ms()
        fast = self._fast
        pending = self._responses.pending
        pipelined = 0
        for frame in self._reader.frames():
            if len(frame) < HEAD_SIZE:
                raise ProtocolError(f"frame of {len(frame)} bytes is too short for a request")
            api_key, version, correlation_id = unpack_head(frame)
            if api_key == _PRODUCE:
                if fast is not None and fast.version == version and fast.stage(frame, correlation_id, now_ms):
                    if pending and self._must_stop():
                        return True
                    continue
                if not 0 <= version <= LAST_VERSION:
                    raise UnservedError(_PRODUCE, version)
                self._producing.handle(PendingResponse(self), fast, frame, version, correlation_id, now_ms, self.received_s)
                fast = self._fast
            else:
                if self._appends.unwritten:
                    self._appends.write_staged()
                if api_key == _FETCH and _FETCH_VERSIONS.includes(version):
                    self._fetch(frame, version, correlation_id)
                else:
                    self._handle(frame, api_key, version, correlation_id)
                pipelined += 1
                if pipelined > PIPELINED_FREE and broker.admission.slices.turn_is_over():
                    return True
            if self._stopping or self._must_stop():
                return True
        return False

    def _complete(self, work: Callable[[], object]) -> None:
        """Complete a request that was held."""
        self._holds -= 1
        if self._closed:
            return
        self._serving = True
        try:
            work()
        except ProtocolError as error:
            self.cut(error)
        except Exception as error:
            self._abort_for_a_bug(error)
        self._appends.write_staged()
        self._serving = False
        self._flush()
        self._resume_later()

    def _fetch(self, frame: memoryview, version: int, correlation_id: int) -> None:
        parts = self._fetching.handle(self, frame, version, correlation_id, self.received_s)
        if parts is None:
            self._responses.collect()
        else:
            self._responses.place(parts, self)

    def _handle(self, frame: memoryview, api_key: int, version: int, correlation_id: int) -> None:
        pending = self._responses.append(PendingResponse(self))
        request = Request(self.channel, pending, api_key, version, correlation_id, len(frame), self.received_s)
        try:
            self._pipeline.handle(request, frame)
        except ProtocolError:
            self._responses.remove(pending)
            raise
        finally:
            self._responses.collect()

    def _work_ended(self, pending: PendingResponse, error: Exception | None) -> None:
        self._work = None
        if isinstance(error, ProtocolError):
            if not self._closed:
                self._responses.remove(pending)
            self.cut(error)
            self._flush()  # closes also where the broker was stopping
        elif error is not None:
            self._abort_for_a_bug(error)
            if self._appends.dirty:
                self._appends.write_staged()
        self.release()

    def _flush(self) -> None:
        """Send what may be sent."""
        if self._closed:
            return
        parts = self._responses.take()
        if parts:
            self._transport.send(parts)
        if self._stopping and not self._responses.pending:
            self._transport.close()

    # Bounds

    def _must_stop(self) -> bool:
        """Whether no further frame of the read may be handled, also after those that wait for the write only are answered."""
        if not self._is_full():
            return False
        if self._appends.unwritten:
            self._appends.write_staged()
            self._responses.collect()
        return self._is_full()

    def _is_full(self) -> bool:
        """Whether no further frame may be handled."""
        limits, waiting = self._broker.admission.limits, self._responses.requests
        if waiting and self._fast is not None:
            waiting += self._fast.rows
        return (
            self._holds > 0
            or waiting >= limits.requests_in_flight_max
            or self._responses.cost + self._transport.queued_bytes() >= limits.queued_bytes_max
        )

    def _pause(self) -> None:
        """Receive nothing until there is room again."""
        if not (self._paused or self._stopping or self._closed):
            self._paused = True
            self._transport.pause_reading()

    def _resume_later(self) -> None:
        """Read on if there is room again, when the clock's turn comes."""
        if self._paused and not self._resume_due and not self._is_full():
            self._resume_due = True
            self._broker.admission.slices.call_later(self._resume)

    def _resume(self) -> None:
        self._resume_due = False
        if self._closed or self._stopping or self._is_full():
            return
        self._paused = False
        self.started_s = self._broker.clock.monotonic()
        try:
            self._serve()
        except Exception as error:
            self._abort_for_a_bug(error)
        if not self._paused and not self._stopping:
            self._transport.resume_reading()
