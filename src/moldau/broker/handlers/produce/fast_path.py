"""The shortest way of a Produce request: a producer's next request is nearly always like its last one.

Same client, same topic, same one partition: between the correlation id and the length of the records every byte is the same. So these
bytes of the last request are kept with what they mean, and a request that has them again needs no decoding: one comparison finds the
partition, and its batch becomes a row of a run (`replicas.append_run`). Whatever is unusual (other bytes, a batch that is refused or
repeated, tagged fields) is left to the general way (`handler`) before anything has happened. Both ways have the same outcome for every
input (property test). With batches of one message this saves a third of the work per message.

The rows of one read are answered together, after the write, or when the in-sync replicas have them. A request that goes the general way
in between has the rows before it reserve their place.

A request with a transactional id comes this way while its producer's transaction is ongoing in the partition. So does the first one of a
transaction up to version 11, if the coordinator answers at once (`transactional.FirstBatches`).
"""

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from moldau.broker.handlers.current_leaders import PRODUCE_FIRST, named
from moldau.broker.quotas import NO_QUOTAS
from moldau.broker.replicas.append_run import AppendRun
from moldau.broker.replicas.appends import ACKS_NONE
from moldau.broker.replicas.partition_events import Level
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.produce import ProducePartitionResult, encode_produce_response
from moldau.protocol.records.header import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, check_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from moldau.broker.handlers.produce.operation import ProduceOperation, Results, Services
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.request import Exchange, RequestSource
    from moldau.protocol.fast.writing import LeaderEndpoint

HEADER_BYTES_MAX = 1024
"""A connection keeps a header to compare with, so a longer one goes the general way each time."""
FIRST_WITH_LOG_START_OFFSET = 5
FIRST_WITH_ZSTD = 7
FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
NAME_SIZE_MAX = 0x7E
"""Longer names take a second byte for their length in flexible versions; they go the general way."""

_ACKS_TIMEOUT_SIZE = 6
_BODY = 8  # of the frame: what comes before are API key, version and correlation id
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request
_ZSTD_BIT = 4  # of the codec numbers 0 to 4 only zstd has it
_read_int32 = Struct(">i").unpack_from


class ProduceFastPath:
    """What the last Produce request of a connection looked like, and the run that the next ones like it join."""

    __slots__ = (
        "_bits",
        "_broker",
        "_counters",
        "_first_batches",
        "_limits",
        "_log",
        "_middle",
        "_pack",
        "_partition",
        "_permits",
        "_records_at",
        "_rows",
        "_run",
        "_size",
        "_source",
        "_stage",
        "_suffix",
        "_timeout_ms",
        "_topic",
        "_transactional",
        "acks",
        "prefix",
        "version",
    )

    def __init__(self, run: AppendRun, broker: "Services", source: "RequestSource", prefix: bytes, operation: "ProduceOperation") -> None:
        """`source` is the connection; `prefix`: the frame's bytes between the correlation id and the length of the records."""
        version = operation.version
        self.version = version
        self.acks = operation.acks
        self._timeout_ms = operation.timeout_ms
        self._broker = broker
        self._counters = broker.counters.produce
        self._source = source
        self._permits = broker.replicas.appends.permits
        self.prefix = prefix
        self._records_at = _BODY + len(prefix)
        self._topic = topic = operation.topics[0][0]
        partition = run.partition
        self._partition = partition
        self._log = partition.log
        self._stage = run.stage
        self._limits = partition.limits
        self._bits = TRANSACTIONAL_BIT | LOG_APPEND_TIME_BIT | (_ZSTD_BIT if version < FIRST_WITH_ZSTD else 0)
        self._transactional = 0 if operation.transactional_id is None else TRANSACTIONAL_BIT
        """Those of `_bits` that a batch has to have."""
        self._first_batches = operation.first_batches()
        # The response: size, correlation id, what never changes, base offset, append time, log start offset, what never changes.
        response = encode_produce_response(version, 0, [(topic, [ProducePartitionResult(partition.index)])])
        if version >= FIRST_WITH_TOPIC_IDS:
            offsets_at = 8 + 2 + 16 + 1 + 6
        elif version >= FIRST_FLEXIBLE:
            offsets_at = 8 + 2 + 1 + len(topic) + 1 + 6
        else:
            offsets_at = 8 + 4 + 2 + len(topic) + 4 + 6
        self._size = len(response) - 4
        self._middle = response[8:offsets_at]
        self._suffix = response[offsets_at + 24 :]
        self._pack = Struct(f">ii{len(self._middle)}sqqq{len(self._suffix)}s").pack
        self._use(run)

    @staticmethod
    def of(
        broker: "Services", source: "RequestSource", frame: memoryview, body: int, operation: "ProduceOperation"
    ) -> "ProduceFastPath | None":
        """What to keep of a request that went the general way, and whose batches are staged; None if it was not of the usual kind. `body`:
        where its body starts.
        """
        version = operation.version
        if len(operation.topics) != 1 or version < FIRST_WITH_LOG_START_OFFSET or body > HEADER_BYTES_MAX:
            return None
        topic, parts = operation.topics[0]
        named = (operation.transactional_id or "").encode()
        size = len(topic)
        if len(parts) != 1 or size > NAME_SIZE_MAX or len(named) > NAME_SIZE_MAX:
            return None
        partition = parts[0].partition
        index = partition.index.to_bytes(4, "big")
        transactional = operation.transactional_id is not None
        if version >= FIRST_FLEXIBLE:
            usual = bytes([len(named) + 1]) + named if transactional else b"\0"
            usual += frame[body + len(usual) : body + len(usual) + _ACKS_TIMEOUT_SIZE]
            usual += b"\2" + (b"" if version >= FIRST_WITH_TOPIC_IDS else bytes([size + 1])) + topic + b"\2" + index
        else:
            usual = len(named).to_bytes(2, "big") + named if transactional else b"\xff\xff"
            usual += frame[body + len(usual) : body + len(usual) + _ACKS_TIMEOUT_SIZE]
            usual += b"\0\0\0\1" + size.to_bytes(2, "big") + topic + b"\0\0\0\1" + index
        prefix = bytes(frame[_BODY : body + len(usual)])
        if prefix[body - _BODY :] != usual:
            return None
        run = broker.replicas.appends.open_run(partition, operation.acks)
        return None if run is None else ProduceFastPath(run, broker, source, prefix, operation)

    def prefix_of(self, frame: memoryview) -> bytes:
        """What another path begins with that this request may take; paths of topics with names of one length have as many bytes."""
        return bytes(frame[_BODY : self._records_at])

    @property
    def epoch(self) -> int:
        """The permit epoch in which it was opened."""
        return self._run.epoch

    @property
    def rows(self) -> int:
        """Requests that are staged and not answered, without those whose place is reserved."""
        return len(self._rows)

    def stage(self, frame: memoryview, correlation_id: int, now_ms: int) -> bool:
        """Stage the batch of a request of this version. False, and nothing has happened, if the general way has to take it."""
        start = self._records_at
        if self._run.epoch != self._permits.value or frame[_BODY:start] != self.prefix:
            return False
        try:
            if self.version >= FIRST_FLEXIBLE:
                size = frame[start]
                start += 1
                if size >= 0x80:
                    shift = 7
                    size &= 0x7F
                    while (byte := frame[start]) >= 0x80:
                        size |= (byte & 0x7F) << shift
                        start += 1
                        shift += 7
                    size |= byte << shift
                    start += 1
                    if shift > 21:
                        return False
                stop = start + size - 1
                if stop + 3 != len(frame) or frame[stop:] != _NO_TAGS:
                    return False
                batch = frame[start:stop]
            else:
                (size,) = _read_int32(frame, start)
                start += 4
                if start + size != len(frame):
                    return False
                batch = frame[start:]
            header = check_batch(batch)
            size = len(batch)
            transactional = self._transactional
            limits = self._limits
            if size > limits.max_plain_bytes or header[5] & self._bits != transactional or header[8] > now_ms + limits.after_max_ms:
                return False
            if transactional and not self._log.has_ongoing_transaction(header[9], header[10]):
                first_batches = self._first_batches
                if first_batches is None or not first_batches.admit(header, now_ms):
                    return False
            stage = self._stage
            base_offset, _, append_time_ms, duplicate = stage(batch, header, now_ms)
        except (PeerError, StorageError, IndexError, struct_error):  # also too short: the general way says where
            return False
        if duplicate:
            return False
        rows = self._rows
        if not rows:
            self._run.begin(append_time_ms, self)
        self._partition.staged_bytes += size
        rows.append((correlation_id, base_offset))
        return True

    def reserve(self) -> None:
        """Give the rows so far a place among the responses, before that of another request."""
        if self.acks != ACKS_NONE:
            place = self._source.reserve(self.rows)
            self._run.owner = _Reserved(self, place)
            self._use(self._run.fresh())

    def _use(self, run: AppendRun) -> None:
        """Note the next rows in `run`."""
        self._run = run
        self._rows = run.rows

    def settle(
        self, run: AppendRun, failures: "Mapping[HostedPartition, PeerError | StorageError]", place: "Exchange | None" = None
    ) -> None:
        """The rows of a run are written, or could not be: answer them, at a place that was reserved for them or after all before."""
        rows, responses, failed = run.rows, None, 0
        count = len(rows)
        if self.acks != ACKS_NONE:
            append_time_ms, start_offset = run.append_time_ms, self._log.start_offset
            if count == 1:
                ((ticket, base_offset),) = rows
                responses = [self._pack(self._size, ticket, self._middle, base_offset, append_time_ms, start_offset, self._suffix)]
            else:
                pack, size, middle, suffix = self._pack, self._size, self._middle, self._suffix
                responses = [pack(size, ticket, middle, base_offset, append_time_ms, start_offset, suffix) for ticket, base_offset in rows]
        if failures:
            failed = self._refuse(run, failures, responses)
        run.owner = None  # it refers to the run
        if responses is not None and run.level is Level.REPLICATED and failed < count:
            self._wait(run, responses, count - failed, place)
            return
        rows.clear()
        self._answer(count, responses, place, self._source.received_s, self._source.started_s)
        if responses is None and failed:
            self._source.cut("produce with acks 0 could not be written")

    def _answer(self, count: int, responses: list[bytes] | None, place: "Exchange | None", received_s: float, started_s: float) -> None:
        """Count requests that are answered now, and send their responses."""
        source, broker = self._source, self._broker
        self._counters.add(received_s, started_s, broker.clock.monotonic(), count)
        quotas = broker.pipeline.quotas
        if quotas is not NO_QUOTAS and (throttle_ms := quotas.throttle_ms(source.channel, ApiKey.PRODUCE, count)):
            source.remember(None)
            source.mute(throttle_ms)
        if responses is None:
            return
        if place is None:
            source.answer_run(count, responses)
        else:
            place.reply(responses)

    def _wait(self, run: AppendRun, responses: list[bytes], written: int, place: "Exchange | None") -> None:
        """Have the first `written` rows, which are in the log, answered with the others once the in-sync replicas have them."""
        rows, source = run.rows, self._source
        count = len(rows)
        last_offset = (
            self._log.log_end_offset - 1 if written == count else rows[written - 1][1]
        )  # what was written with them has as far to go
        tickets = [ticket for ticket, _ in rows[:written]]
        rows.clear()
        received_s, started_s = source.received_s, source.started_s
        if place is None:
            place = source.reserve(count, count * self._size)

        def done(error: PeerError | StorageError | None) -> None:
            if error is not None:
                responses[:written] = self._errors(tickets, error)
            self._answer(count, responses, place, received_s, started_s)

        appends = self._broker.replicas.appends
        place.delay(appends.wait(run.partition, last_offset, run.level, done, completes=False, timeout_ms=self._timeout_ms))

    def _refuse(self, run: AppendRun, failures: "Mapping[HostedPartition, PeerError | StorageError]", responses: list[bytes] | None) -> int:
        """Put errors in place of the responses to rows that could not be written; how many these are."""
        written, error = run.written(failures)
        tickets = [ticket for ticket, _ in run.rows[written:]]
        if error is None:
            return 0
        errors = self._errors(tickets, error)
        if responses is not None:
            responses[written:] = errors
        return len(tickets)

    def _errors(self, tickets: "Sequence[int]", error: PeerError | StorageError) -> list[bytes]:
        """Responses with an error, which is counted."""
        code, text = (error.code, error.message) if isinstance(error, PeerError) else (ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self._counters.failed([code] * len(tickets))
        results: Sequence[Results] = [(self._topic, [ProducePartitionResult(self._partition.index, code, error_message=text)])]
        leaders: Sequence[LeaderEndpoint] = ()
        if self.version >= PRODUCE_FIRST:
            results, leaders = named(self._broker, self._source.channel, results, by_id=self.version >= FIRST_WITH_TOPIC_IDS)
        return [encode_produce_response(self.version, ticket, results, 0, leaders) for ticket in tickets]

    def abort(self) -> None:
        """As `RunOwner`."""
        self._source.abort()


class _Reserved:
    """The owner of a run that has its place among the responses."""

    __slots__ = ("_fast", "_place")

    def __init__(self, fast: ProduceFastPath, place: "Exchange") -> None:
        self._fast = fast
        self._place = place

    def settle(self, run: AppendRun, failures: "Mapping[HostedPartition, PeerError | StorageError]") -> None:
        """As `RunOwner`."""
        self._fast.settle(run, failures, self._place)

    def abort(self) -> None:
        """As `RunOwner`."""
        self._fast.abort()
