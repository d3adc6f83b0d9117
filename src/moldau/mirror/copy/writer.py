"""Sends what was fetched to the leaders of the target: for each leader a few requests at a time, for each partition one.

Each request of a leader that is out has a connection of its own: over a long way, where one waits for a segment that the network has lost,
the others come through. The order of a partition does not depend on it, since its next request waits for the answer to the last one.

Which records of a partition are missing there is the target's to say: what it has it passes over, so that a request may be sent twice.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.mirror.window import Window
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers
    from moldau.wire.connection import Address

_LOG = logging.getLogger(__name__)

REQUEST_BYTES = 1024 * 1024
"""Of a request, beyond which no partition is added: the others go with the next one, at the same time."""
JOINED_BYTES = 64 * 1024
"""What was fetched in pieces is sent as one up to here: the pieces are copied for it."""
JOINED_BYTES_MAX = 4 * 1024 * 1024
"""The same where answers of the target take long to come."""
TIMEOUT_MS = 10_000
ACKS_ALL = -1
PRODUCE_VERSIONS = VersionRange(9, 12)
"""Flexible, for the tagged field, and by name."""


class Outlet:
    """What waits for one partition of the target.

    `end`: where its log has ended by the last answer; each request names it, so that a log that has lost records takes none after them.
    `stored` is called with the end of its log, `failed` with why something was not stored, and then nothing waits; both with the bytes that
    do not wait any more.
    """

    __slots__ = ("end", "failed", "is_dropped", "is_out", "pieces", "size", "stored", "target")

    def __init__(
        self,
        target: TopicPartition,
        end: int,
        stored: Callable[[int, int], object],
        failed: Callable[[PeerError | WorldError, int], object],
    ) -> None:
        self.target = target
        self.end = end
        self.stored = stored
        self.failed = failed
        self.pieces: deque[memoryview] = deque()
        self.size = 0
        """Bytes that wait, those included that are out."""
        self.is_out = False
        """Whether a request with this partition waits for its answer."""
        self.is_dropped = False

    def taken(self, joined_bytes: int) -> "bytes | memoryview | None":
        """What is sent next; None: no records, the leader is only asked whether it takes any. Pieces are joined up to `joined_bytes`."""
        if not self.pieces:
            return None
        first = self.pieces.popleft()
        if len(first) >= joined_bytes or not self.pieces:
            return first
        joined = [first]
        size = len(first)
        while self.pieces and size + len(self.pieces[0]) <= joined_bytes:
            joined.append(self.pieces.popleft())
            size += len(joined[-1])
        return b"".join(joined)


class CopyWriter:
    """See the module. `mirror`: its name, without which the target takes no offsets. `out_max`: unanswered requests to a leader."""

    def __init__(self, brokers: "Brokers", mirror: str, out_max: int, clock: "Clock") -> None:
        self._clock = clock
        self._out_max = out_max
        self._brokers = brokers
        self._mirror = mirror
        self._ready: dict[Outlet, None] = {}
        """With something to send, and nothing out."""
        self._out: dict[Address, set[int]] = {}
        """By leader: numbers of the connections on which a request waits for its answer."""
        self._windows: dict[Address, Window] = {}
        self._work = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, outlet: Outlet, piece: memoryview) -> None:
        """Send batches."""
        outlet.pieces.append(piece)
        outlet.size += len(piece)
        self._schedule(outlet)

    def probe(self, outlet: Outlet) -> None:
        """Ask the leader whether it still takes a mirror's records, which fails as a refusal of records would."""
        self._schedule(outlet)

    def _schedule(self, outlet: Outlet) -> None:
        if not outlet.is_out:
            self._ready[outlet] = None
            self._work.set()

    def drop(self, outlet: Outlet) -> int:
        """Send nothing more of it, and say nothing more; what is out may be stored. The bytes that waited."""
        self._ready.pop(outlet, None)
        outlet.pieces.clear()
        size, outlet.size = outlet.size, 0
        outlet.is_dropped = True
        return size

    async def run(self) -> None:
        """Send, until it is cancelled."""
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                for address, outlets in (await self._by_leader()).items():
                    out, waiting = self._out.setdefault(address, set()), deque(outlets)
                    while waiting and len(out) < self._out_max:
                        self._start(address, next(number for number in range(self._out_max) if number not in out), waiting)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _by_leader(self) -> "dict[Address, list[Outlet]]":
        found: dict[Address, list[Outlet]] = {}
        for outlet in list(self._ready):
            try:
                address = await self._brokers.leader(outlet.target)
            except (PeerError, WorldError) as error:
                self._fail(outlet, error)
            else:
                found.setdefault(address, []).append(outlet)
        return {address: [each for each in outlets if each in self._ready] for address, outlets in found.items()}

    def _start(self, address: "Address", number: int, outlets: deque[Outlet]) -> None:
        """Send what the first of these have over a connection; they are taken off."""
        topics: dict[str, TopicProduceData] = {}
        sent: dict[TopicPartition, tuple[Outlet, int]] = {}
        size = 0
        window = self._windows.setdefault(address, Window(JOINED_BYTES, JOINED_BYTES_MAX))
        while outlets and size < REQUEST_BYTES:
            outlet = outlets.popleft()
            del self._ready[outlet]
            outlet.is_out = True
            records = outlet.taken(window.size)
            count = 0 if records is None else len(records)
            size += count
            topic = topics.setdefault(outlet.target.topic, TopicProduceData(outlet.target.topic))
            topic.partition_data.append(PartitionProduceData(outlet.target.partition, records))
            sent[outlet.target] = outlet, count
        self._out[address].add(number)
        known_ends = [sent[TopicPartition(topic.name, each.index)][0].end for topic in topics.values() for each in topic.partition_data]
        task = asyncio.ensure_future(self._send(address, number, list(topics.values()), known_ends, sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self,
        address: "Address",
        number: int,
        topics: list[TopicProduceData],
        known_ends: list[int],
        sent: dict[TopicPartition, tuple[Outlet, int]],
    ) -> None:
        window = self._windows[address]
        try:
            connection = await self._brokers.connection(address, f"copy {number}")
            request = ProduceRequest(None, ACKS_ALL, TIMEOUT_MS, topics, self._mirror, known_ends)
            sent_s = self._clock.monotonic()
            response = await connection.send(ApiKey.PRODUCE, request, timeout_s=TIMEOUT_MS / 1000 + 5, version=PRODUCE_VERSIONS)
            window.answered(max(size for _, size in sent.values()), self._clock.monotonic() - sent_s)
            answers = {TopicPartition(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}
            for target, (outlet, size) in sent.items():
                self._answered(outlet, size, answers[target])
        except (PeerError, WorldError) as error:
            window.lost()
            self._fail_all(sent, error)
        except Exception as bug:
            _LOG.exception("batches not sent because of a bug: leader=%s:%d", *address)
            self._fail_all(sent, WorldError(f"a bug, see the log: {bug!r}", retriable=True))
        finally:
            self._out[address].discard(number)
            self._work.set()

    def _fail_all(self, sent: dict[TopicPartition, tuple[Outlet, int]], error: PeerError | WorldError) -> None:
        for outlet, _ in sent.values():
            self._fail(outlet, error)

    def _answered(self, outlet: Outlet, size: int, answer: Any) -> None:
        outlet.is_out = False
        is_probe = size == 0
        if answer.error_code and not (is_probe and answer.error_code == ErrorCode.INVALID_RECORD):
            code = known_error(answer.error_code)
            text = f"{outlet.target}: {code.name.lower()}" + (f": {answer.error_message}" if answer.error_message else "")
            self._fail(outlet, PeerError(code, text))
            return
        if outlet.is_dropped:
            return
        outlet.size -= size
        if outlet.pieces:
            self._ready[outlet] = None
        if not is_probe:
            outlet.end = answer.base_offset
            outlet.stored(answer.base_offset, size)

    def _fail(self, outlet: Outlet, error: PeerError | WorldError) -> None:
        self._brokers.forget_topic(outlet.target.topic)
        if not outlet.is_dropped:
            outlet.failed(error, self.drop(outlet))


REFUSALS = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
)
"""What the target would refuse the next time too."""
