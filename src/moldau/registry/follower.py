"""Follows ``_schemas`` in a thread: every record is applied to the state, in order, as soon as it is in the log.

Who needs to see what was written until now calls `catch_up`: it asks for the end of the log and waits until all before it is applied.
"""

import logging
import threading
import time
from typing import TYPE_CHECKING

from moldau.client.checked import checked_batches
from moldau.client.cluster import Cluster
from moldau.client.partition_requests import EARLIEST, LATEST, FetchLimits
from moldau.model.errors import ErrorCode, MoldauError, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import iterate

if TYPE_CHECKING:
    from moldau.client.partition_requests import Fetched
    from moldau.registry.state import State

log = logging.getLogger(__name__)

_WAIT_MS = 250
_PAUSE_S = 0.2
_ASK_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 1.0
_SAY_EVERY_S = 30.0
_BYTES_MAX = 8 << 20
_DECOMPRESSED_BYTES_MAX = 256 << 20


class BehindError(WorldError):
    """The log could not be read to its end in time."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic} could not be read to its end: {reason}", retriable=True)


class Follower:
    """Reads partition 0 of `topic` from its beginning into `state`, with two connections of its own."""

    def __init__(self, bootstrap: str, topic: str, state: "State", *, timeout_s: float = 30.0) -> None:
        self.topic = topic
        self._where = TopicPartition(topic, 0)
        self._state = state
        self._reading = Cluster(bootstrap, client_id="moldau-registry", timeout_s=timeout_s)
        self._asking = Cluster(bootstrap, client_id="moldau-registry", timeout_s=min(timeout_s, _ASK_TIMEOUT_S))
        self._asking_lock = threading.Lock()
        self._moved = threading.Condition()
        self._position = 0
        self._trouble = ""
        self._said_at = -_SAY_EVERY_S
        self._stopping = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="moldau-registry-follower", daemon=True)

    @property
    def position(self) -> int:
        """The offset of the next record to be applied."""
        return self._position

    def start(self) -> None:
        """Begin to read, where the log begins. WorldError, PeerError."""
        with self._asking_lock:
            self._position = self._asking.list_offsets({self._where: EARLIEST})[self._where].offset
        self._thread.start()

    def stop(self) -> None:
        """End at once, whatever is under way."""
        self._stopping.set()
        with self._moved:
            self._moved.notify_all()
        for each in (self._reading, self._asking):
            each.interrupt()
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        self._reading.close()
        if self._asking_lock.acquire(timeout=_STOP_TIMEOUT_S):
            self._asking.close()
            self._asking_lock.release()

    def read_all(self, stalled_s: float) -> int:
        """As `catch_up`, for the start: a large topic takes as long as it takes, BehindError if nothing of it is read for `stalled_s`."""
        end = self._find_end(stalled_s)
        while True:
            before = self._position
            try:
                self.wait_for(end, stalled_s)
            except BehindError:
                if self._position == before or self._ended or self._stopping.is_set():
                    raise
                log.info("registry topic is being read: topic=%s offset=%d end=%d", self.topic, self._position, end)
            else:
                return end

    def catch_up(self, timeout_s: float) -> int:
        """Wait until all that is in the log by now is applied; its end. BehindError, WorldError, PeerError."""
        deadline = time.monotonic() + timeout_s
        end = self._find_end(timeout_s)
        self.wait_for(end, deadline - time.monotonic())
        return end

    def _find_end(self, timeout_s: float) -> int:
        if not self._asking_lock.acquire(timeout=timeout_s):
            raise BehindError(self.topic, f"after {timeout_s:.0f} s others are still asking for its end")
        before = self._position  # what others write while we ask is read too, and lies behind the answer
        try:
            end = self._asking.list_offsets({self._where: LATEST})[self._where].offset
        finally:
            self._asking_lock.release()
        if end < before:
            raise BehindError(self.topic, f"it ends at offset {end}, and was read up to {before} before: it was deleted or cut")
        return end

    def wait_for(self, end: int, timeout_s: float) -> None:
        """Wait until every record before `end` is applied. BehindError, also once nothing is read any more: what is in memory may be of
        another log then."""
        deadline = time.monotonic() + timeout_s
        with self._moved:
            while self._position < end or self._ended:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._ended or self._stopping.is_set():
                    raise BehindError(self.topic, self._trouble or f"after {timeout_s:.0f} s it is at offset {self._position} of {end}")
                self._moved.wait(left_s)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._step()
                except MoldauError as error:
                    if self._stopping.is_set():
                        return
                    self._say(error)
                    if isinstance(error, PeerError) and error.code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE):
                        log.critical("registry topic deleted or cut, look-ups continue, nothing is written: topic=%s", self.topic)
                        return
                    self._stopping.wait(_PAUSE_S)
        except MemoryError:
            log.critical("registry topic not read any more, no memory left; look-ups continue, nothing is written: topic=%s", self.topic)
        finally:
            with self._moved:
                self._ended = True
                self._moved.notify_all()

    def _step(self) -> None:
        fetched = self._reading.fetch(
            self.topic, 0, self._position, FetchLimits(max_wait_ms=_WAIT_MS, max_bytes=_BYTES_MAX, partition_max_bytes=_BYTES_MAX)
        )
        position = self._apply(fetched)
        if position != self._position:
            with self._moved:
                self._position, self._trouble = position, ""
                self._moved.notify_all()

    def _apply(self, fetched: "Fetched") -> int:
        position = self._position
        for header, batch in checked_batches(self._where, fetched, position):
            if not header.is_control:
                self._apply_batch(header.base_offset, batch, position)
            position = header.last_offset + 1
        return position

    def _apply_batch(self, base_offset: int, batch: memoryview, position: int) -> None:
        """Apply its records from `position` on. What cannot be read of it never will be: it is logged and skipped, for every start reads
        the topic from its beginning.
        """
        offset = max(base_offset, position)
        try:
            for record in iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX, with_headers=False):
                if record.offset >= position:
                    self._state.apply(record.offset, record.timestamp, record.key, record.value)
                offset = max(offset, record.offset + 1)
        except PeerError as error:
            log.error("registry records skipped: partition=%s offset=%d reason=%s", self._where, offset, error.message)

    def _say(self, error: MoldauError) -> None:
        with self._moved:
            self._trouble = str(error)
        if time.monotonic() - self._said_at >= _SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.warning("registry topic not read, tried again: topic=%s reason=%s", self.topic, error)
